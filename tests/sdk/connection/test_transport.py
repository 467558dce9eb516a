"""Which requests are resent, and the errors for servers that are unreachable, busy or not Penstock."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.sdk.connection import transport as transport_module
from penstock.sdk.connection.transport import HttpTransport, RequestRetries, base_url, route
from penstock.sdk.failures import Busy, InvalidRequest, ServerRefused, ServerUnavailable, Unreachable
from tests.support.live import free_port

HANG_UP = b""
QUICK = RequestRetries(seconds=20, first_pause_s=0.001, longest_pause_s=0.002)


def answer(status: int, body: str, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} So", f"Content-Length: {len(body.encode())}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


FINE = answer(200, '{"fine": true}')


@dataclass
class Scripted:
    """A server with one scripted response per request, which records requests."""

    answers: list[bytes | None]
    heard: list[bytes] = field(default_factory=list)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length")
                    ),
                    0,
                )
                self.heard.append(head + await reader.readexactly(size))
                said = self.answers.pop(0)
                if said is None:
                    await reader.read()
                if not said:
                    return
                writer.write(said)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def scripted(*answers: bytes | None, port: int = 0) -> AsyncIterator[Scripted]:
    script = Scripted(list(answers))
    serving = await asyncio.start_server(script.serve, "127.0.0.1", port)
    script.url = f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}"
    try:
        yield script
    finally:
        serving.close()


@asynccontextmanager
async def reaching(script: Scripted, **options: Any) -> AsyncIterator[HttpTransport]:
    made = HttpTransport(script.url, **({"retries": QUICK} | options))
    try:
        yield made
    finally:
        await made.close()


async def ask(
    answers: Sequence[bytes | None], *, idempotent: bool, **options: Any
) -> tuple[Any, list[bytes]]:
    """The outcome of one POST, and the requests that the server received."""
    async with scripted(*answers) as script, reaching(script, **options) as made:
        try:
            body = await made.control("POST", "/workflows", {"a": 1}, idempotent=idempotent)
        except Exception as error:
            return error, script.heard
        return body, script.heard


# Resending


async def test_an_idempotent_request_whose_connection_was_lost_is_sent_again_with_the_same_bytes() -> None:
    found, heard = await ask([HANG_UP, HANG_UP, FINE], idempotent=True)
    assert found == {"fine": True}
    assert len(heard) == 3
    assert len(set(heard)) == 1


async def test_a_request_that_may_have_been_carried_out_is_not_sent_again_and_the_error_says_so() -> None:
    found, heard = await ask([HANG_UP, FINE], idempotent=False)
    assert isinstance(found, Unreachable)
    assert "may have had an effect" in str(found)
    assert len(heard) == 1


async def test_any_request_is_sent_again_while_no_connection_can_be_made() -> None:
    port, refused = free_port(), asyncio.Event()

    def jitter() -> float:
        refused.set()
        return 0.0

    made = HttpTransport(f"http://127.0.0.1:{port}", retries=QUICK, jitter=jitter)
    asking = asyncio.create_task(made.control("POST", "/workflows", {}, idempotent=False))
    await refused.wait()
    async with scripted(FINE, port=port):
        assert await asking == {"fine": True}
    await made.close()


async def test_a_get_is_idempotent_without_saying_so() -> None:
    async with scripted(HANG_UP, FINE) as script, reaching(script) as made:
        assert await made.control("GET", "/workflows", idempotent=False) == {"fine": True}


@pytest.mark.parametrize("status", [429, 503])
async def test_an_idempotent_request_that_is_told_not_now_is_sent_again(status: int) -> None:
    busy = answer(status, '{"reason": "server_draining", "message": "leaving"}', Retry_After="0")
    found, heard = await ask([busy, FINE], idempotent=True)
    assert (found, len(heard)) == ({"fine": True}, 2)
    found, heard = await ask([busy, FINE], idempotent=False)
    assert isinstance(found, ServerUnavailable | Busy)
    assert len(heard) == 1


async def test_a_server_that_asks_for_more_patience_than_there_is_is_believed_at_once() -> None:
    busy = answer(429, '{"reason": "query_task_queue_full", "message": "full"}', Retry_After="60")
    found, heard = await ask([busy, FINE], idempotent=True)
    assert isinstance(found, ServerRefused)
    assert len(heard) == 1


def test_pauses_grow_to_a_longest_one_with_jitter_and_never_cut_what_the_server_asks_for() -> None:
    retries = RequestRetries(first_pause_s=0.1, longest_pause_s=1.0)
    assert [retries.pause_s(attempt, None, 1.0) for attempt in range(1, 7)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert retries.pause_s(3, None, 0.0) == pytest.approx(0.2)
    assert retries.pause_s(1, 7.0, 0.0) == 7.0
    assert 7.0 <= retries.pause_s(1, 7.0, 1.0) <= 8.0
    assert retries.pause_s(10_000, None, 1.0) == 1.0


async def test_other_refusals_are_raised_at_once_with_their_reason() -> None:
    refused = answer(422, '{"reason": "validation_failed", "message": "no", "errors": {"a": ["is odd"]}}')
    found, heard = await ask([refused, FINE], idempotent=True)
    assert isinstance(found, InvalidRequest)
    assert (found.reason, found.status, found.details["errors"]) == (
        "validation_failed",
        422,
        {"a": ["is odd"]},
    )
    assert len(heard) == 1


async def test_patience_ends() -> None:
    made = HttpTransport(f"http://127.0.0.1:{free_port()}", retries=RequestRetries(seconds=0.01))
    with pytest.raises(Unreachable, match=r"Cannot reach http://127.0.0.1"):
        await made.control("GET", "/workflows", idempotent=True)
    await made.close()


async def test_an_answer_that_does_not_come_in_time_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MARGIN_SECONDS", 0.05)
    async with scripted(None, FINE) as script, reaching(script) as made:
        found = await made.control("POST", "/workflows", {}, idempotent=True, timeout_s=0.0)
        assert (found, len(script.heard)) == ({"fine": True}, 2)
    async with scripted(None) as script, reaching(script) as made:
        with pytest.raises(Unreachable, match=r"did not answer within 0.05 seconds"):
            await made.control("POST", "/workflows", {}, idempotent=False, timeout_s=0.0)


# Other programs


async def test_another_program_on_the_port_is_told_apart() -> None:
    page = answer(200, "<html>hello</html>")
    found, heard = await ask([page, FINE], idempotent=True)
    assert isinstance(found, Unreachable)
    assert "not as a Penstock server does" in str(found)
    assert len(heard) == 1


async def test_an_answer_that_is_no_http_is_told_without_the_token() -> None:
    found, _ = await ask([b"220 mail.example ready\r\n\r\n"], idempotent=False, token="t0ken")
    assert isinstance(found, Unreachable)
    assert "not valid HTTP" in str(found)
    told = "".join(traceback.format_exception(found)) + repr(found.__cause__) + repr(found.__context__)
    assert "t0ken" not in told


async def test_a_redirect_is_not_followed_so_that_the_token_stays_here() -> None:
    async with scripted(FINE) as other:
        away = answer(302, "", Location=f"{other.url}/api/workflows")
        found, _ = await ask([away], idempotent=True, token="t0ken")
        assert isinstance(found, Unreachable)
        assert other.heard == []


async def test_a_proxy_whose_server_is_away_is_asked_again() -> None:
    found, heard = await ask([answer(502, "<html>bad gateway</html>"), FINE], idempotent=True)
    assert (found, len(heard)) == ({"fine": True}, 2)
    found, heard = await ask([answer(502, "<html>bad gateway</html>"), FINE], idempotent=False)
    assert isinstance(found, Unreachable)
    assert len(heard) == 1


# Request contents


async def test_each_plane_has_its_version_and_its_token() -> None:
    tokens = {"control_token": "c0ntrol", "worker_token": "w0rker", "token": "b0th"}
    async with scripted(FINE, FINE) as script, reaching(script, namespace="orders", **tokens) as made:
        await made.control("POST", "/workflows", {}, idempotent=True, idempotency_key="k-1")
        await made.work("/worker/register", {}, idempotent=True)
    control, work = (heard.decode().lower() for heard in script.heard)
    assert "post /api/workflows http/1.1" in control
    assert "x-durable-workflow-control-plane-version: 2\r\n" in control
    assert "authorization: bearer c0ntrol\r\n" in control
    assert "idempotency-key: k-1\r\n" in control
    assert "post /api/worker/register http/1.1" in work
    assert "x-durable-workflow-protocol-version: 1.20\r\n" in work
    assert "authorization: bearer w0rker\r\n" in work
    assert "x-namespace: orders\r\n" in control
    assert "x-namespace: orders\r\n" in work


async def test_names_reach_the_server_as_they_are() -> None:
    async with scripted(FINE) as script, reaching(script) as made:
        query = {"query": "a = 'b&c'", "wait_new_event": True, "left_out": None}
        await made.control("GET", route("workflows", "a/b", "signal", "ü?#%2F"), idempotent=True, query=query)
    path = script.heard[0].split(b" ")[1]
    assert (
        path == b"/api/workflows/a%2Fb/signal/%C3%BC%3F%23%252F?query=a+%3D+%27b%26c%27&wait_new_event=true"
    )


async def test_connections_are_kept_open() -> None:
    async with scripted(FINE, FINE, FINE) as script, reaching(script) as made:
        for _ in range(3):
            await made.control("GET", "/workflows", idempotent=True)
        assert len(script.heard) == 3
        assert len(script.answers) == 0


# Errors before anything is sent


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:8080/api", "Leave out /api at the end of the address: http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/api/", "Leave out /api"),
        ("127.0.0.1:8080", "is not the address of a server"),
        ("ftp://127.0.0.1", "is not the address of a server"),
        ("http://host:port", "is not the address of a server"),
        ("http://host/?a=b", "is not the address of a server"),
        ("http://me:s3cret@host", "must not contain a password"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(url: str, told: str) -> None:
    with pytest.raises(ValueError) as refused:
        HttpTransport(url)
    assert told in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_an_address_may_have_a_path_of_its_own() -> None:
    assert base_url(" https://example.org/penstock/ ") == "https://example.org/penstock"


def test_a_token_leaves_this_machine_over_https_only_unless_that_is_wanted() -> None:
    with pytest.raises(ValueError, match=r"Refusing to send a token in the clear to penstock.example"):
        HttpTransport("http://penstock.example:8080", token="t0ken")
    HttpTransport("http://penstock.example:8080", token="t0ken", insecure=True)
    HttpTransport("http://penstock.example:8080")
    HttpTransport("https://penstock.example", token="t0ken")
    HttpTransport("http://[::1]:8080", token="t0ken")


def test_tokens_are_checked_and_not_shown() -> None:
    with pytest.raises(ValueError, match="must be printable ASCII") as refused:
        HttpTransport("http://127.0.0.1:8080", token="t0\nken")
    assert "t0" not in str(refused.value)
    assert "t0ken" not in repr(HttpTransport("http://127.0.0.1:8080", token="t0ken"))


async def test_a_transport_that_is_closed_says_so() -> None:
    made = HttpTransport("http://127.0.0.1:8080")
    await made.close()
    with pytest.raises(RuntimeError, match="closed"):
        await made.control("GET", "/workflows", idempotent=True)


async def test_a_transport_belongs_to_one_loop_at_a_time() -> None:
    async with scripted(FINE) as script, reaching(script) as made:
        await made.control("GET", "/workflows", idempotent=True)

        def elsewhere() -> None:
            asyncio.run(made.control("GET", "/workflows", idempotent=True))

        with pytest.raises(RuntimeError, match="belongs to the event loop"):
            await asyncio.to_thread(elsewhere)
