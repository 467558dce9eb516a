"""Malformed and slow requests on a raw socket: rejected with a reason, timed out, and harmless to others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from penstock.server import protocol
from penstock.server.protocol import BoundedProtocol
from tests.server.client import Client
from tests.support.live import LiveServer
from tests.support.patience import PATIENCE_S

AUTH = "Host: 127.0.0.1\r\nAuthorization: Bearer operator-secret\r\nX-Durable-Workflow-Control-Plane-Version: 2\r\n"
POST = f"POST /api/workflows HTTP/1.1\r\n{AUTH}Content-Type: application/json\r\n"
GET = f"GET /api/workflows HTTP/1.1\r\n{AUTH}"
BODY = b'{"workflow_type": "greet"}'


class Wire:
    """One connection, byte by byte."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: str | bytes) -> Wire:
        with contextlib.suppress(
            ConnectionError
        ):  # the server may send its error before it has read everything
            self.socket.sendall(data if isinstance(data, bytes) else data.encode())
        return self

    def answer(self) -> tuple[int, dict[str, Any]]:
        """The status and the body of the next answer."""
        head, _, rest = self.until(b"\r\n\r\n").partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        lengths = [line for line in lines if line.lower().startswith("content-length:")]
        size = int(lengths[0].partition(":")[2])
        while len(rest) < size:
            rest += self.socket.recv(65_536)
        return int(lines[0].split()[1]), json.loads(rest[:size])

    def is_closed(self) -> bool:
        """Whether the other side hangs up; waits for it as long as the socket's timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def until(self, end: bytes) -> bytes:
        found = b""
        while end not in found:
            more = self.socket.recv(65_536)
            assert more, found
            found += more
        return found


def workflows(server: LiveServer) -> list[Any]:
    """The open ones; a test that starts one ends it."""
    with Wire(server.port) as wire:
        status, body = wire.send(f"{GET.replace(' HTTP', '?status=running HTTP')}\r\n").answer()
    assert status == 200
    found: list[Any] = body["workflows"]
    return found


MALFORMED = {
    "a length and chunks": POST + "Content-Length: 26\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST + "Transfer-Encoding: chunked\r\nContent-Length: 26\r\n\r\n0\r\n\r\n",
    "two lengths": POST + "Content-Length: 26\r\nContent-Length: 27\r\n\r\n" + BODY.decode(),
    "a length below zero": POST + "Content-Length: -1\r\n\r\n",
    "a length beyond all numbers": POST + f"Content-Length: {'9' * 30}\r\n\r\n",
    "an unknown transfer coding": POST + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked, but not last": POST + "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "a chunk size that is none": POST + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a NUL in the path": GET.replace("workflows", "work\x00flows") + "\r\n",
    "a NUL in a header": GET + "X-Odd: a\x00b\r\n\r\n",
    "a folded header": GET + "X-Odd: a\r\n b\r\n\r\n",
    "a space before the colon": GET + "X-Odd : a\r\n\r\n",
    "a path outside ASCII": GET.replace("workflows", "workflows/é") + "\r\n",
    "no path": GET.replace("/api/workflows", "?x") + "\r\n",
    "an unknown method": GET.replace("GET", "BREW") + "\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("method", ["plain", "absolute"])
def test_an_encoded_slash_in_a_path_is_part_of_an_id(live_server: LiveServer, method: str) -> None:
    """Also where the request line is a whole address, as proxies send it."""
    body = b'{"workflow_type": "greet", "workflow_id": "a/..x/b%", "id_reuse_policy": "allow_duplicate"}'
    with Wire(live_server.port) as wire:
        wire.send(f"{POST}Content-Length: {len(body)}\r\n\r\n").send(body)
        status, started = wire.answer()
        assert (status, started["workflow_id"]) == (201, "a/..x/b%")
        path = "/api/workflows/a%2F..x%2Fb%25"
        path = path if method == "plain" else f"http://127.0.0.1{path}"
        status, found = wire.send(f"GET {path} HTTP/1.1\r\n{AUTH}\r\n").answer()
        assert (status, found.get("run_id")) == (200, started["run_id"])
        end = path.replace("b%25", "b%25/terminate")
        head = f"POST {end} HTTP/1.1\r\n{AUTH}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
        assert wire.send(head).answer()[0] == 200


class TestRefusals:
    @pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
    def test_what_is_no_request_is_refused_by_name_and_cut_off(
        self, live_server: LiveServer, data: str | bytes
    ) -> None:
        with Wire(live_server.port) as wire:
            status, body = wire.send(data).answer()
            assert (status, body["reason"]) == (400, "malformed_request")
            assert wire.is_closed()
        assert workflows(live_server) == []

    @pytest.mark.parametrize(
        "head",
        [
            GET + "".join(f"X-{number}: y\r\n" for number in range(10_000)) + "\r\n",
            GET + "".join(f"X-{number}: y\r\n" for number in range(300)) + "\r\n",
            GET + f"X-Long: {'y' * 100_000}\r\n\r\n",
            GET + "X-Endless: " + "y" * 100_000,
            GET.replace("workflows", "workflows?query=" + "y" * 100_000) + "\r\n",
        ],
        ids=["10,000 headers", "300 headers", "a long header", "an endless header", "a long path"],
    )
    def test_a_head_of_absurd_size_is_refused_and_cut_off(self, live_server: LiveServer, head: str) -> None:
        with Wire(live_server.port) as wire:
            status, body = wire.send(head).answer()
            assert (status, body["reason"]) == (431, "head_too_large")
            assert wire.is_closed()

    def test_so_are_trailers(self, live_server: LiveServer) -> None:
        trailers = "".join(f"X-{number}: y\r\n" for number in range(10_000))
        with Wire(live_server.port) as wire:
            status, body = wire.send(
                f"{POST}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n{trailers}\r\n"
            ).answer()
        assert (status, body["reason"]) == (431, "head_too_large")

    def test_a_trailer_is_no_header(self, live_server: LiveServer) -> None:
        """Else what a proxy has checked and what we obey could differ."""
        request = POST.replace("Authorization: Bearer operator-secret\r\n", "")
        trailer = "Authorization: Bearer operator-secret\r\n"
        with Wire(live_server.port) as wire:
            status, body = wire.send(
                f"{request}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n{trailer}\r\n"
            ).answer()
        assert (status, body["reason"]) == (401, "unauthorized")

    @pytest.mark.parametrize("expect", ["", "Expect: 100-continue\r\n"])
    def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(
        self, live_server: LiveServer, expect: str
    ) -> None:
        with Wire(live_server.port) as wire:
            status, body = wire.send(f"{POST}{expect}Content-Length: 3000000000\r\n\r\n").answer()
            assert (status, body["reason"]) == (413, "payload_too_large")
            assert wire.is_closed()

    def test_a_body_in_chunks_is_refused_when_it_grows_too_large(self, live_server: LiveServer) -> None:
        chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        with Wire(live_server.port) as wire:
            wire.send(f"{POST}Transfer-Encoding: chunked\r\n\r\n").send(chunk * 33)
            status, body = wire.answer()
            assert (status, body["reason"]) == (413, "payload_too_large")
            assert wire.is_closed()

    @pytest.mark.parametrize("upgrade", ["websocket", "h2c"])
    def test_a_wish_for_another_protocol_is_passed_over(self, live_server: LiveServer, upgrade: str) -> None:
        wish = f"Connection: Upgrade\r\nUpgrade: {upgrade}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
        with Wire(live_server.port) as wire:
            status, _ = wire.send(f"{GET}{wish}\r\n").answer()
        assert status == 200

    def test_a_host_in_the_request_line_does_not_stand_in_for_the_header(
        self, live_server: LiveServer
    ) -> None:
        with Wire(live_server.port) as wire:
            request = GET.replace("Host: 127.0.0.1", "Host: evil.example")
            status, body = wire.send(request.replace("/api", "http://127.0.0.1/api") + "\r\n").answer()
        assert (status, body["reason"]) == (421, "misdirected_host")

    def test_malformed_requests_leave_no_line_in_the_log(self, live_server: LiveServer) -> None:
        before = live_server.log.read_text()
        for _ in range(20):
            with Wire(live_server.port) as wire:
                wire.send("BREW / COFFEE\r\n\r\n").answer()
        assert live_server.log.read_text() == before


class TestSlowness:
    def test_unfinished_requests_of_some_do_not_keep_others_waiting(self, live_server: LiveServer) -> None:
        with contextlib.ExitStack() as stack:
            for number in range(200):
                wire = stack.enter_context(Wire(live_server.port))
                wire.send(GET if number % 2 else f"{POST}Content-Length: 1000\r\n\r\n{{")
            assert workflows(live_server) == []

    def test_a_body_that_is_never_finished_starts_nothing(self, live_server: LiveServer) -> None:
        with Wire(live_server.port) as wire:
            wire.send(f"{POST}Content-Length: {len(BODY)}\r\n\r\n").send(BODY[:-1])
        with Wire(live_server.port) as wire:
            wire.send(f"{POST}Transfer-Encoding: chunked\r\n\r\n1a\r\n").send(BODY + b"\r\n")
        assert workflows(live_server) == []

    def test_requests_that_follow_each_other_on_one_connection_are_counted_anew(
        self, live_server: LiveServer
    ) -> None:
        padding = f"X-Padding: {'y' * 40_000}\r\n"
        with Wire(live_server.port) as wire:
            for _ in range(5):
                status, _ = wire.send(f"{GET}{padding}\r\n").answer()
                assert status == 200


@contextlib.asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    """The bounded protocol on a socket of this process, so that its limits can be short."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    config = uvicorn.Config(app, http=BoundedProtocol, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with bound, contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(
            server, "capture_signals", contextlib.nullcontext
        )
        running = asyncio.create_task(server.serve(sockets=[bound]))
        try:
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            await running


class TestDeadlines:
    @pytest.mark.parametrize(
        ("limit", "sent"),
        [
            ("HEAD_SECONDS_MAX", GET),
            ("HEAD_SECONDS_MAX", "G"),
            ("BODY_SECONDS_MAX", f"{POST}Content-Length: 1000\r\n\r\n{{"),
            ("BODY_SECONDS_MAX", f"{POST}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"),
        ],
    )
    async def test_a_request_that_does_not_arrive_in_time_is_told_so_and_cut_off(
        self, penstock: Client, monkeypatch: pytest.MonkeyPatch, limit: str, sent: str
    ) -> None:
        monkeypatch.setattr(protocol, limit, 0.05)
        async with listening(penstock.app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent.encode())
            answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"reason":"request_timeout"' in answer

    async def test_dripping_one_byte_at_a_time_does_not_move_the_deadline(
        self, penstock: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(protocol, "HEAD_SECONDS_MAX", 0.2)
        async with listening(penstock.app) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nX-Drip: ")
            answered = asyncio.create_task(reader.read())
            for _ in range(2000):
                if answered.done():
                    break
                writer.write(b"y")
                await asyncio.wait([answered], timeout=0.02)
            with contextlib.suppress(ConnectionError):
                assert (await answered).startswith(b"HTTP/1.1 408 ")
            writer.close()
        assert answered.done()

    async def test_a_request_that_arrived_may_be_answered_at_leisure(
        self, penstock: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(protocol, "BODY_SECONDS_MAX", 0.05)
        release = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            asyncio.get_running_loop().call_later(0.2, release.set)
            await release.wait()
            await penstock.app(scope, receive, send)

        async with listening(slow) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for part in (f"{GET}Content-Length: 2\r\n", "\r\n{", "}"):
                writer.write(part.encode())
                await writer.drain()
            assert (await asyncio.wait_for(reader.readline(), PATIENCE_S)).startswith(b"HTTP/1.1 200 ")
            writer.close()


# ── Answers ─────────────────────────────────────────────────────────────────────────────────────────────


class Sink(asyncio.Transport):
    """Keeps what is written to it, each time by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def in_one_piece(sink: Sink) -> protocol.CoalescingTransport:
    return protocol.CoalescingTransport(sink, asyncio.get_running_loop())


async def test_the_head_of_an_answer_is_sent_with_its_body() -> None:
    sink = Sink()
    answer = in_one_piece(sink)
    answer.write(b"head")
    answer.write(b"body")
    answer.write(b"more")
    await asyncio.sleep(0)
    assert sink.writes == [b"headbody", b"more"]


async def test_a_head_whose_body_takes_its_time_goes_ahead() -> None:
    sink = Sink()
    answer = in_one_piece(sink)
    answer.write(b"head")
    await asyncio.sleep(0)
    assert sink.writes == [b"head"]
    answer.write(b"body")
    assert sink.writes == [b"head", b"body"]


async def test_an_answer_without_a_body_is_sent_before_the_connection_is_closed() -> None:
    sink = Sink()
    answer = in_one_piece(sink)
    answer.write(b"head")
    answer.close()
    await asyncio.sleep(0)
    assert (sink.writes, sink.closed) == ([b"head"], True)


async def test_an_interim_response_is_written_at_once_and_is_not_the_head() -> None:
    sink = Sink()
    answer = in_one_piece(sink)
    answer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert sink.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    answer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    answer.write(b"body")
    assert sink.writes[1:] == [b"HTTP/1.1 200 OK\r\n\r\nbody"]
