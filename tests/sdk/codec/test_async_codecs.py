"""Codecs whose methods are coroutines: where they are applied, and what is refused. A program uses one end to end."""

from __future__ import annotations

import asyncio
from typing import Any, Unpack, cast

import pytest

from penstock.sdk.connection.async_codecs import AsyncCodecTransport
from penstock.sdk.connection.transport import ControlOptions, Json, WorkOptions
from penstock.sdk.converters import ConversionError, DataConverter, UnreadablePayload, ZlibCodec


class Reverse:
    """Reverses bytes, as soon as as many values wait as are sent together."""

    name = "reverse"

    def __init__(self, together: int = 1) -> None:
        self._together = asyncio.Barrier(together)

    async def encode(self, data: bytes) -> bytes:
        await self._together.wait()
        return data[::-1]

    async def decode(self, data: bytes) -> bytes:
        await self._together.wait()
        return data[::-1]


class Broken(Reverse):
    async def encode(self, data: bytes) -> bytes:
        raise OSError("no keys today")

    decode = encode


class Half:
    name = "half"

    async def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


class Echo:
    """A transport that answers with what it was sent."""

    def __init__(self) -> None:
        self.sent: Json = {}

    async def control(
        self, method: str, path: str, body: Json | None = None, **options: Unpack[ControlOptions]
    ) -> Json:
        self.sent = dict(body or {})
        return self.sent

    async def work(self, path: str, body: Json, **options: Unpack[WorkOptions]) -> Json:
        return await self.control("POST", path, body, idempotent=True)

    async def close(self) -> None:
        self.sent = {}


async def sent_through(codec: Any, body: Json) -> tuple[Json, Json]:
    echo = Echo()
    answer = await AsyncCodecTransport(echo, [codec]).control("POST", "/x", body, idempotent=True)
    return echo.sent, answer


async def test_each_argument_is_encoded_by_itself_and_all_of_them_at_the_same_time():
    plain = DataConverter()
    body: dict[str, Any] = {
        "input": plain.encode_arguments(["a", [1, 2], None], "x"),
        "name": "n",
        "tags": ["t"],
    }
    sent, answer = await sent_through(Reverse(together=3), body)
    assert (sent["name"], sent["tags"]) == ("n", ["t"])
    assert sent["input"]["blob"] != body["input"]["blob"]
    assert plain.decode_arguments(answer["input"]) == ["a", [1, 2], None]
    with pytest.raises(UnreadablePayload, match='encoded as "reverse"'):
        plain.decode_arguments(sent["input"])


async def test_it_works_on_what_other_codecs_have_written():
    converter = DataConverter(codecs=[ZlibCodec(min_size=1), Reverse()])
    assert [codec.name for codec in converter.codecs] == ["zlib"]
    sent, answer = await sent_through(Reverse(), {"result": converter.encode("a" * 500, "x")})
    assert DataConverter().decode(answer["result"], str) == "a" * 500
    with pytest.raises(UnreadablePayload, match='encoded as "reverse"'):
        converter.decode(sent["result"])


async def test_a_list_that_is_one_value_comes_back_as_it_was():
    """Seen: the details of a failure, which are such a list, came back encoded."""
    value = ["a", {"penstock.encoded": "mine"}, 3]
    _, answer = await sent_through(Reverse(together=1), {"details": DataConverter().encode(value[::2], "x")})
    assert DataConverter().decode(answer["details"]) == value[::2]
    _, answer = await sent_through(Reverse(together=1), {"result": DataConverter().encode(value[1], "x")})
    assert DataConverter().decode(answer["result"]) == value[1]


async def test_memos_are_no_payloads():
    body = {"entries": DataConverter().encode({"colour": "red"}, "memo")}
    sent, _ = await sent_through(Broken(), body)
    assert sent == body


async def test_what_cannot_be_encoded_is_not_sent():
    echo = Echo()
    with pytest.raises(ConversionError, match="no keys today"):
        await AsyncCodecTransport(echo, [Broken()]).work(
            "/x", {"result": DataConverter().encode(1, "x")}, idempotent=True
        )
    assert not echo.sent


async def test_what_cannot_be_decoded_disturbs_only_the_reader_that_needs_it():
    sent, _ = await sent_through(Reverse(), {"result": DataConverter().encode(1, "x"), "other": 2})
    _, answer = await sent_through(
        Broken(), {"events": [{"payload": {"result": sent["result"]["blob"]}}], "other": 2}
    )
    assert answer["other"] == 2
    with pytest.raises(UnreadablePayload, match='"reverse" cannot decode it: OSError: no keys today'):
        DataConverter().decode(answer["events"][0]["payload"]["result"])


async def test_codecs_in_another_order_and_half_asynchronous_ones_are_refused():
    with pytest.raises(ValueError, match="come after the others"):
        DataConverter(codecs=[Reverse(), ZlibCodec()])
    with pytest.raises(TypeError, match="one asynchronous method"):
        DataConverter(codecs=[cast(Any, Half())])
    with pytest.raises(ValueError, match="two codecs"):
        DataConverter(codecs=[Reverse(), Reverse()])
