"""What comes of answers in all their forms, and which connections are used again."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from penstock.sdk.http import connections as connections_module
from penstock.sdk.http.connection import Answer, Disconnected, Garbled
from penstock.sdk.http.connections import Connections, NotConnected
from tests.support.live import free_port

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Stage:
    """A server that says one thing for each request, and counts connections and requests."""

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


@asynccontextmanager
async def reaching(stage: Stage) -> AsyncIterator[Connections]:
    serving = await asyncio.start_server(stage.serve, "127.0.0.1", 0)
    made = Connections(f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}", True)
    try:
        yield made
    finally:
        made.close()
        serving.close()


async def ask(made: Connections, *, timeout_s: float = 20.0, again: bool = True) -> Answer:
    return await made.ask(REQUEST, timeout_s, again=again)


@pytest.mark.parametrize(
    "said",
    [
        HELLO,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(gzip.compress(b"hello")), gzip.compress(b"hello")),
    ],
    ids=["whole", "chunked", "after a go-on", "packed"],
)
async def test_an_answer_is_read_in_every_form_and_the_connection_used_again(said: bytes) -> None:
    stage = Stage(said, said)
    async with reaching(stage) as made:
        assert [(await ask(made)).body for _ in range(2)] == [b"hello", b"hello"]
    assert (stage.opened, stage.requests) == (1, 2)


async def test_an_answer_that_ends_with_its_connection_is_whole_then() -> None:
    stage = Stage(b"HTTP/1.1 200 OK\r\n\r\nhello", HELLO, then=lambda writer: writer.close())
    async with reaching(stage) as made:
        assert (await ask(made)).body == b"hello"
        assert (await ask(made)).body == b"hello"
    assert stage.opened == 2


async def test_a_connection_that_the_server_wants_closed_is_not_used_again() -> None:
    last = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
    stage = Stage(last, HELLO)
    async with reaching(stage) as made:
        assert [(await ask(made)).status for _ in range(2)] == [200, 200]
    assert stage.opened == 2


@pytest.mark.parametrize("again", [True, False])
async def test_a_kept_connection_that_is_closed_meanwhile_costs_one_more_try_if_that_is_safe(
    again: bool,
) -> None:
    stage = Stage(HELLO)
    async with reaching(stage) as made:
        await ask(made)
        stage.then = lambda writer: writer.close() if stage.requests == 2 else writer.write(HELLO)
        if again:
            assert (await ask(made)).body == b"hello"
        else:
            with pytest.raises(Disconnected):
                await ask(made, again=False)
    assert stage.requests == (3 if again else 2)


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        HELLO[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
    ],
)
async def test_an_answer_that_is_cut_off_is_none(cut: bytes) -> None:
    async with reaching(Stage(cut, then=lambda writer: writer.close())) as made:
        with pytest.raises(Disconnected):
            await ask(made)


@pytest.mark.parametrize(
    "said",
    [
        b"220 mail ready\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_what_is_no_http_is_told_apart(said: bytes) -> None:
    async with reaching(Stage(said)) as made:
        with pytest.raises(Garbled):
            await ask(made)


async def test_who_waits_no_longer_closes_the_connection_so_that_the_server_knows() -> None:
    stage = Stage()
    async with reaching(stage) as made:
        with pytest.raises(TimeoutError):
            await ask(made, timeout_s=0.01)
        await stage.closed.wait()
        stage.closed.clear()
        waiting = asyncio.create_task(ask(made))
        while stage.requests < 2:
            await asyncio.sleep(0)
        waiting.cancel()
        await stage.closed.wait()


async def test_requests_at_the_same_time_have_connections_of_their_own_which_are_closed_when_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections_module, "KEPT_SECONDS", 0.01)
    stage = Stage(*[HELLO] * 3)
    async with reaching(stage) as made:
        await asyncio.gather(*(ask(made) for _ in range(3)))
        assert stage.opened == 3
        await stage.closed.wait()


async def test_nobody_there_is_told_apart_from_an_answer_that_was_lost() -> None:
    made = Connections(f"http://localhost:{free_port()}", True)
    with pytest.raises(NotConnected) as refused:
        await ask(made)
    assert isinstance(refused.value.cause, ConnectionRefusedError)


def test_the_other_event_loop_does_as_well() -> None:
    async def talk() -> bytes:
        async with reaching(Stage(HELLO)) as made:
            return (await ask(made)).body

    assert uvloop.run(talk()) == b"hello"
