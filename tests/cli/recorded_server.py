"""A loopback server that answers each route with what was recorded for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from click.testing import Result

TOKEN = "canary-token-d41d8cd98f"
Run = Callable[..., Result]


@dataclass
class Request:
    """What the command line sent."""

    method: str
    raw_path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class RecordedServer:
    """Answers each route with what was recorded for it, the last answer again and again."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: dict[tuple[str, str], list[tuple[int, bytes]]] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: object, status: int = 200) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers.setdefault((method, f"/api{path}"), []).append((status, raw))

    def drop(self, method: str, path: str) -> None:
        """Record that the connection breaks without an answer, as of a server that is restarted."""
        self.answers.setdefault((method, f"/api{path}"), []).append((0, b""))

    def take(self, request: Request) -> tuple[int, bytes]:
        self.requests.append(request)
        waiting = self.answers.get((request.method, request.raw_path))
        if not waiting:
            return 404, b'{"message": "No such route.", "reason": "not_found"}'
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    @property
    def only_request(self) -> Request:
        assert len(self.requests) == 1, self.requests
        return self.requests[0]


def _handler(recorded: RecordedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            request = Request(
                method=self.command,
                raw_path=parts.path,
                query={key: values[0] for key, values in parse_qs(parts.query).items()},
                headers={key.lower(): value for key, value in self.headers.items()},
                body=json.loads(content) if content else None,
            )
            status, raw = recorded.take(request)
            if not status:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 (names that the library calls)

        def log_message(self, *_args: object) -> None:
            """Tests read the requests, not a log."""

    return Handler


@contextmanager
def recorded_server() -> Iterator[RecordedServer]:
    """A recorded server on a free port, until the end of the block."""
    recorded = RecordedServer()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _handler(recorded))
    recorded.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield recorded
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
