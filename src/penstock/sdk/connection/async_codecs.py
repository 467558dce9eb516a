"""A transport that applies codecs whose methods are coroutines, such as those that ask a key service.

Workflow code cannot wait for a codec: what it issues is encoded while its event loop runs. So asynchronous codecs are
applied where requests leave and answers arrive, after and before everything else that happens to a payload:

- Outgoing bodies: each value of an envelope, and each argument of a list, becomes a map with the names of the codecs
  and the encoded bytes, as synchronous codecs write it. A receiver may use either kind for a name.
- Incoming bodies: values that name an asynchronous codec are replaced by what is inside. The values of one body are
  decoded at the same time.

A value that a codec cannot decode is left as it is, with the error beside it: whoever needs it gets
`UnreadablePayload`, and whoever does not is not disturbed. A value that cannot be encoded fails the request.

A client without asynchronous codecs has no such transport, and pays nothing.
"""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Iterator, Sequence
from typing import Any, Final, Unpack

from penstock.core import payload_codec
from penstock.core.call_headers import HEADERS_KEY
from penstock.errors import InvalidInput
from penstock.sdk.connection.transport import ControlOptions, Json, Transport, WorkOptions
from penstock.sdk.converters import ConversionError
from penstock.sdk.converters.payload_codecs import (
    DATA_KEY,
    ENCODED_KEY,
    PROBLEM_KEY,
    AsyncPayloadCodec,
    bytes_of,
    looks_encoded,
)

_MARK: Final = "wwHioz3/VYAi"
"""With these characters every blob of the payload codec begins: its header, in base64."""
_PLAIN_FIELDS: Final = frozenset({"entries"})
"""Fields of envelopes that the server reads: memos are no payloads."""


class AsyncCodecTransport:
    """Applies asynchronous codecs around another transport.

    Args:
        inner: sends the requests.
        codecs: the codecs, in the order in which they encode.
    """

    def __init__(self, inner: Transport, codecs: Sequence[AsyncPayloadCodec]) -> None:
        self.inner = inner
        self._codecs = tuple(codecs)
        self._by_name = {codec.name: codec for codec in codecs}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __repr__(self) -> str:
        return repr(self.inner)

    async def control(
        self, method: str, path: str, body: Json | None = None, **options: Unpack[ControlOptions]
    ) -> Json:
        sent = body if body is None else await self._encoded(body)
        return await self._decoded(await self.inner.control(method, path, sent, **options))

    async def work(self, path: str, body: Json, **options: Unpack[WorkOptions]) -> Json:
        sent = body if path.endswith(("/poll", "/batch")) else await self._encoded(body)
        return await self._decoded(await self.inner.work(path, sent, **options))

    async def offloaded(self, body: Json) -> Json:
        """Return a body as it is sent later, in a batch: encoded, and with its large payloads uploaded."""
        encoded = await self._encoded(body)
        offload = getattr(self.inner, "offloaded", None)
        return encoded if offload is None else await offload(encoded)

    async def close(self) -> None:
        await self.inner.close()

    # Outgoing

    async def _encoded(self, body: Json) -> Json:
        blobs = list(dict.fromkeys(_outgoing(body)))
        made = await asyncio.gather(*map(self._encoded_blob, blobs))
        replaced: Json = _with_blobs(body, dict(zip(blobs, made, strict=True))) if blobs else body
        return replaced

    async def _encoded_blob(self, blob: str) -> str:
        value = payload_codec.decode(blob)
        if not isinstance(value, list):
            return payload_codec.encode(await self._encoded_value(value))
        return payload_codec.encode(list(await asyncio.gather(*map(self._encoded_value, value))))

    async def _encoded_value(self, value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {HEADERS_KEY}:
            return {HEADERS_KEY: await self._encoded_value(value[HEADERS_KEY])}
        is_encoded = isinstance(value, dict) and ENCODED_KEY in value
        names: list[str] = list(value[ENCODED_KEY]) if is_encoded else []
        before = value[DATA_KEY] if is_encoded else bytes_of(value)
        data: Any = before
        for codec in self._codecs:
            try:
                data = await codec.encode(before)
            except Exception as error:
                raise ConversionError(
                    "a payload of this request", _problem(codec.name, "encode", error)
                ) from error
            if not isinstance(data, bytes):
                text = f'the codec "{codec.name}" gave a {type(data).__name__} instead of bytes'
                raise ConversionError("a payload of this request", text)
            if data is not before:
                names.append(codec.name)
            before = data
        return {ENCODED_KEY: names, DATA_KEY: data} if names else value

    # Incoming

    async def _decoded(self, answer: Json) -> Json:
        blobs = list(dict.fromkeys(_incoming(answer)))
        made = await asyncio.gather(*map(self._decoded_blob, blobs))
        changed = {blob: new for blob, new in zip(blobs, made, strict=True) if new != blob}
        replaced: Json = _with_blobs(answer, changed) if changed else answer
        return replaced

    async def _decoded_blob(self, blob: str) -> str:
        try:
            value = payload_codec.decode(blob)
        except InvalidInput:
            return blob  # the converter reports it
        values = value if isinstance(value, list) else [value]
        if not any(map(self._is_mine, values)):
            return blob
        found = await asyncio.gather(*map(self._decoded_value, values))
        return payload_codec.encode(list(found) if isinstance(value, list) else found[0])

    def _is_mine(self, value: Any) -> bool:
        inside = value.get(HEADERS_KEY, value) if isinstance(value, dict) else None
        names = inside.get(ENCODED_KEY) if isinstance(inside, dict) else None
        return isinstance(names, list) and bool(names) and names[-1] in self._by_name

    async def _decoded_value(self, value: Any) -> Any:
        if not self._is_mine(value):
            return value
        if HEADERS_KEY in value:
            return {HEADERS_KEY: await self._decoded_value(value[HEADERS_KEY])}
        names, data = list(value[ENCODED_KEY]), value[DATA_KEY]
        while names and names[-1] in self._by_name:
            codec = self._by_name[names[-1]]
            try:
                data = await codec.decode(data)
            except Exception as error:
                return value | {PROBLEM_KEY: _problem(codec.name, "decode", error)}
            names.pop()
        return _bare({ENCODED_KEY: names, DATA_KEY: data})


def _bare(value: Json) -> Any:
    """Return what a value without further codecs holds: it may be a member of a list that is one value."""
    if value[ENCODED_KEY]:
        return value
    try:
        inside = payload_codec.decode(binascii.b2a_base64(value[DATA_KEY], newline=False).decode("ascii"))
    except InvalidInput:
        return value  # the converter reports it
    return value if looks_encoded(inside) else inside


def _problem(name: str, step: str, error: Exception) -> str:
    cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f'the codec "{name}" cannot {step} it: {cause}'


def _outgoing(value: Any) -> Iterator[str]:
    """Yield the blobs of a body that are payloads."""
    if isinstance(value, list):
        for each in value:
            yield from _outgoing(each)
    elif isinstance(value, dict):
        if value.keys() == {"codec", "blob"} and isinstance(value["blob"], str):
            yield value["blob"]
            return
        for name, each in value.items():
            if name not in _PLAIN_FIELDS:
                yield from _outgoing(each)


def _incoming(value: Any) -> Iterator[str]:
    """Yield all blobs of an answer: histories have them without an envelope."""
    if isinstance(value, str):
        if value.startswith(_MARK):
            yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _incoming(each)


def _with_blobs(value: Any, made: dict[str, str]) -> Any:
    if isinstance(value, str):
        return made.get(value, value)
    if isinstance(value, list):
        return [_with_blobs(each, made) for each in value]
    if isinstance(value, dict):
        return {
            name: each if name in _PLAIN_FIELDS else _with_blobs(each, made) for name, each in value.items()
        }
    return value
