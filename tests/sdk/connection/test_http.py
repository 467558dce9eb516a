"""HTTP responses in all forms, and which connections are reused."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import struct
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
import uvloop

from penstock.sdk.connection.transport import HttpTransport
from penstock.sdk.failures import Unreachable
from penstock.sdk.http import connection_pool as connections_module
from penstock.sdk.http import response
from penstock.sdk.http.connection import ConnectionLost, HttpConnection
from penstock.sdk.http.connection_pool import ConnectFailed, HttpConnectionPool
from penstock.sdk.http.response import HttpResponse, MalformedResponse, ResponseTooLarge
from tests.support.live import free_port

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def zipped(text: bytes) -> bytes:
    """The same bytes in every call: they become test ids, which all processes must agree on."""
    return gzip.compress(text, mtime=0)


def packed(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Stage:
    """A server with one response per request, which counts connections and requests."""

    def __init__(self, *said: bytes, then: Callable[[asyncio.StreamWriter], None] | None = None) -> None:
        self.said, self.then = list(said), then
        self.requests = 0
        self.opened = 0
        self.closed = asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                if self.said:
                    writer.write(self.said.pop(0))
                    await writer.drain()
                if self.then is not None:
                    self.then(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed.set()
            writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    there = writer.get_extra_info("socket")
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def talking(stage: Stage) -> AsyncIterator[HttpTransport]:
    serving = await asyncio.start_server(stage.serve, "127.0.0.1", 0)
    client = HttpTransport(f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}")
    try:
        yield client
    finally:
        await client.close()
        serving.close()


@asynccontextmanager
async def reaching(stage: Stage) -> AsyncIterator[HttpConnectionPool]:
    serving = await asyncio.start_server(stage.serve, "127.0.0.1", 0)
    made = HttpConnectionPool(f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}", True)
    try:
        yield made
    finally:
        made.close()
        serving.close()


async def send(made: HttpConnectionPool, *, timeout_s: float = 20.0, again: bool = True) -> HttpResponse:
    return await made.send(REQUEST, timeout_s, again=again)


@pytest.mark.parametrize(
    "said",
    [
        HELLO,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO,
        b"HTTP/1.1 103 Early\r\nContent-Encoding: gzip\r\n\r\n" + HELLO,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nContent-Encoding: gzip\r\n\r\n",
        packed(zipped(b"hello")),
        packed(zipped(b"hel") + zipped(b"") + zipped(b"lo")),
    ],
    ids=[
        "whole",
        "chunked",
        "after a go-on",
        "after a hint",
        "before a trailer",
        "packed",
        "packed in members",
    ],
)
async def test_an_answer_is_read_in_every_form_and_the_connection_used_again(said: bytes) -> None:
    stage = Stage(said, said)
    async with reaching(stage) as made:
        assert [(await send(made)).body for _ in range(2)] == [b"hello", b"hello"]
    assert (stage.opened, stage.requests) == (1, 2)


async def test_an_answer_that_ends_with_its_connection_is_whole_then() -> None:
    stage = Stage(b"HTTP/1.1 200 OK\r\n\r\nhello", HELLO, then=lambda writer: writer.close())
    async with reaching(stage) as made:
        assert (await send(made)).body == b"hello"
        assert (await send(made)).body == b"hello"
    assert stage.opened == 2


async def test_nothing_that_is_packed_is_nothing() -> None:
    async with reaching(Stage(packed(b""))) as made:
        assert (await send(made)).body == b""


@pytest.mark.parametrize(
    "surplus", [b"H", HELLO[:-2], HELLO, HELLO + HELLO[:-2], b"HTTP/1.1 100 Continue\r\n\r\n"]
)
async def test_an_answer_nobody_asked_for_is_given_to_nobody_and_ends_the_connection(surplus: bytes) -> None:
    stage = Stage(EMPTY + surplus, HELLO)
    async with reaching(stage) as made:
        assert [(await send(made)).body for _ in range(2)] == [b"{}", b"hello"]
    assert stage.opened == 2


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_an_answer_without_a_body_is_not_taken_for_the_next_one(status: bytes) -> None:
    stage = Stage(b"HTTP/1.1 %b\r\n\r\n" % status)
    async with reaching(stage) as made:
        assert (await send(made)).status == int(status[:3])
        stage.then = lambda writer: writer.close()
        with pytest.raises(ConnectionLost):
            await send(made, again=False)
    assert stage.opened == 1


async def test_a_connection_keeps_nothing_of_an_answer_that_was_read() -> None:
    async with reaching(Stage(HELLO)) as made:
        answer = await send(made)
        assert [each for each in gc.get_referrers(answer.headers) if each is not answer] == []


async def test_a_connection_that_the_server_wants_closed_is_not_used_again() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
    stage = Stage(last, HELLO)
    async with reaching(stage) as made:
        assert [(await send(made)).status for _ in range(2)] == [200, 200]
    assert stage.opened == 2


@pytest.mark.parametrize("again", [True, False])
async def test_a_kept_connection_that_is_closed_meanwhile_costs_one_more_try_if_that_is_safe(
    again: bool,
) -> None:
    stage = Stage(HELLO)
    async with reaching(stage) as made:
        await send(made)
        stage.then = lambda writer: writer.close() if stage.requests == 2 else writer.write(HELLO)
        if again:
            assert (await send(made)).body == b"hello"
        else:
            with pytest.raises(ConnectionLost):
                await send(made, again=False)
    assert stage.requests == (3 if again else 2)


async def test_a_kept_connection_that_is_reset_in_place_of_an_answer_costs_one_more_try() -> None:
    stage = Stage(HELLO)
    async with reaching(stage) as made:
        await send(made)
        stage.then = lambda writer: reset(writer) if stage.requests == 2 else writer.write(HELLO)
        assert (await send(made)).body == b"hello"
    assert (stage.opened, stage.requests) == (2, 3)


async def test_a_connection_that_is_about_to_close_is_not_used_again() -> None:
    here, there = socket.socketpair()
    with there:
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: HttpConnection(lambda _: None), sock=here
        )
        assert connection.is_usable
        transport.close()
        assert not connection.is_usable


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        HELLO[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
    ],
)
async def test_an_answer_that_is_cut_off_is_none(cut: bytes) -> None:
    async with reaching(Stage(cut, then=lambda writer: writer.close())) as made:
        with pytest.raises(ConnectionLost):
            await send(made)


@pytest.mark.parametrize(
    "said",
    [
        b"220 mail ready\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: it\r\nConnection: upgrade\r\n\r\n",
        packed(b"hello"),
        packed(zipped(b"hello")[:-3]),
    ],
)
async def test_what_is_no_http_is_told_apart(said: bytes) -> None:
    async with reaching(Stage(said)) as made:
        with pytest.raises(MalformedResponse):
            await send(made)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2_000 + b"\r\n\r\n", "headers are more than 1 KiB or 9 lines"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 10 + b"\r\n", "headers are more than 1 KiB or 9 lines"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n" + b" " * 2_000_000, "longer than 1 MiB"),
        (packed(zipped(b" " * 2_000_000)), "longer than 1 MiB"),
        (packed(zipped(b" " * 700_000) * 2), "longer than 1 MiB"),
    ],
    ids=["a long header", "many headers", "a long body", "a bomb", "a bomb in parts"],
)
async def test_an_answer_beyond_all_bounds_is_not_read_and_the_user_is_told(
    monkeypatch: pytest.MonkeyPatch, said: bytes, told: str
) -> None:
    small_bounds(monkeypatch)
    stage = Stage(said)
    async with talking(stage) as client:
        with pytest.raises(Unreachable, match=told) as refused:
            await client.control("GET", "/x", idempotent=True)
    assert isinstance(refused.value.__cause__, ResponseTooLarge)
    assert stage.requests == 1


async def test_a_header_that_never_ends_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    small_bounds(monkeypatch)

    def pour(writer: asyncio.StreamWriter) -> None:
        if not writer.is_closing():
            writer.write(b"x" * 1_000)
            asyncio.get_running_loop().call_soon(pour, writer)

    async with reaching(Stage(b"HTTP/1.1 200 OK\r\nX: ", then=pour)) as made:
        with pytest.raises(ResponseTooLarge, match="headers"):
            await send(made)


def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "HEADER_BYTES_MAX", 1024)
    monkeypatch.setattr(response, "HEADER_LINES_MAX", 9)
    monkeypatch.setattr(response, "BODY_BYTES_MAX", 1024 * 1024)


async def test_who_waits_no_longer_closes_the_connection_so_that_the_server_knows() -> None:
    stage = Stage(HELLO)
    async with reaching(stage) as made:
        await send(made)  # the time of the next request is spent on its response, not on connecting
        with pytest.raises(TimeoutError):
            await send(made, timeout_s=0.01)
        await stage.closed.wait()
        stage.closed.clear()
        waiting = asyncio.create_task(send(made))
        while stage.requests < 3:
            await asyncio.sleep(0)
        waiting.cancel()
        await stage.closed.wait()


async def test_requests_at_the_same_time_have_connections_of_their_own_which_are_closed_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections_module, "IDLE_SECONDS", 0.01)
    stage = Stage(*[HELLO] * 3)
    async with reaching(stage) as made:
        await asyncio.gather(*(send(made) for _ in range(3)))
        assert stage.opened == 3
        await stage.closed.wait()


async def test_nobody_there_is_told_apart_from_an_answer_that_was_lost() -> None:
    made = HttpConnectionPool(f"http://localhost:{free_port()}", True)
    with pytest.raises(ConnectFailed) as refused:
        await send(made)
    assert isinstance(refused.value.cause, ConnectionRefusedError)


def test_the_other_event_loop_does_as_well() -> None:
    async def talk() -> bytes:
        async with reaching(Stage(HELLO)) as made:
            return (await send(made)).body

    assert uvloop.run(talk()) == b"hello"


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_client_that_is_closed_ends_its_requests_and_opens_nothing_any_more(
    kept: bool, idempotent: bool
) -> None:
    stage = Stage(*[EMPTY] * kept)
    async with talking(stage) as client:
        if kept:
            await client.control("GET", "/x", idempotent=True)
        waiting = asyncio.create_task(client.control("POST", "/x", idempotent=idempotent))
        while stage.requests < 1 + kept:
            await asyncio.sleep(0)
        await client.close()
        with pytest.raises(RuntimeError, match="This client is closed") as told:
            await waiting
        await stage.closed.wait()
    assert ("may have had an effect" in str(told.value)) is not idempotent
    assert stage.opened == 1


async def test_a_connection_that_was_being_opened_when_the_client_was_closed_is_closed() -> None:
    stage = Stage(EMPTY)
    async with talking(stage) as client:
        waiting = asyncio.create_task(client.control("GET", "/x", idempotent=True))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(RuntimeError, match="This client is closed"):
            await waiting
        await stage.closed.wait()
    assert stage.requests == 0


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_is_closed_leaves_nothing_open(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def talk(client: HttpTransport) -> None:
        await client.control("GET", "/x", idempotent=True)
        await client.close()
        asyncio.get_running_loop().stop()

    with one_answer(EMPTY) as url, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loop = make_loop()
        talking = loop.create_task(talk(HttpTransport(url)))
        loop.run_forever()
        loop.close()
        assert talking.done()
        del talking, loop
        gc.collect()
    assert [str(each.message) for each in warned] == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_is_closed_quietly_when_its_loop_is_gone() -> None:
    with one_answer(EMPTY) as url:
        client = HttpTransport(url)
        assert asyncio.run(client.control("GET", "/x", idempotent=True)) == {}
        asyncio.run(client.close())
        with pytest.raises(RuntimeError, match="This client is closed"):
            asyncio.run(client.control("GET", "/x", idempotent=True))
        del client
        gc.collect()


@contextmanager
def one_answer(said: bytes) -> Iterator[str]:
    """A server outside of every event loop; it runs until the other side closes."""

    def serve() -> None:
        there, _ = listening.accept()
        with there:
            there.recv(10_000)
            there.sendall(said)
            with suppress(ConnectionError):
                there.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()
