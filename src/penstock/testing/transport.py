"""A transport to a server in the same process: it calls the application without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, MutableMapping
from typing import Any, Unpack
from urllib.parse import unquote, urlencode

import msgspec

from penstock.sdk.connection.transport import CONTROL_PLANE, WORKER_PLANE, ControlOptions, Json, WorkOptions
from penstock.sdk.failures import refusal
from penstock.server.app import Application
from penstock.testing.request_tracker import RequestTracker
from penstock.testing.skippable_clock import SkippableClock

Message = MutableMapping[str, Any]


class InProcessTransport:
    """Calls an ASGI application. It records whether each request polls, waits for a result, or neither."""

    def __init__(
        self, application: Application, tracker: RequestTracker, clock: SkippableClock, *, namespace: str
    ) -> None:
        self._application, self._tracker, self._namespace = application, tracker, namespace
        self.clock = clock
        """The clock by which workers time activities."""
        self._loop = asyncio.get_running_loop()
        self._closed = False

    def __repr__(self) -> str:
        return f"InProcessTransport(namespace={self._namespace!r})"

    async def control(
        self, method: str, path: str, body: Json | None = None, **options: Unpack[ControlOptions]
    ) -> Json:
        headers = dict([CONTROL_PLANE])
        key, query = options.get("idempotency_key"), options.get("query")
        if key is not None:
            headers["Idempotency-Key"] = key
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        if not _awaits_result(body, query):
            with self._tracker.call():
                return await self._request(method, path, headers, body, given)
        return await self._wait(method, path, headers, body, given)

    async def work(self, path: str, body: Json, **options: Unpack[WorkOptions]) -> Json:
        method, on_send = options.get("method", "POST"), options.get("on_send")
        sent = None if method in ("GET", "DELETE") else body
        if on_send is not None:
            on_send()
        around = self._tracker.poll() if path.endswith("/poll") else self._tracker.call()
        with around:
            return await self._request(method, path, dict([WORKER_PLANE]), sent, {})

    async def close(self) -> None:
        self._closed = True

    async def _wait(
        self, method: str, path: str, headers: dict[str, str], body: Json | None, query: Mapping[str, str]
    ) -> Json:
        with self._tracker.wait(path) as wait:
            asking = asyncio.ensure_future(self._request(method, path, headers, body, query))
            try:
                either: set[asyncio.Future[Any]] = {asking, wait.given_up}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not asking.done():
                    wait.given_up.result()
                return asking.result()
            finally:
                if not asking.done():
                    asking.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await asking

    async def _request(
        self, method: str, path: str, headers: dict[str, str], body: Json | None, query: Mapping[str, str]
    ) -> Json:
        self._check()
        content = b"" if body is None else msgspec.json.encode(body)
        status, raw = await self._call(method, f"/api{path}", headers, content, query)
        response: Json = msgspec.json.decode(raw)
        if status >= 400:
            raise refusal(status, response)
        return response

    def _check(self) -> None:
        if self._closed:
            raise RuntimeError("This test environment is shut down; start a new one")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "A test environment belongs to the event loop in which it was started, and this is another one. "
                "With pytest-asyncio, give the fixture and the test the same loop scope."
            )

    async def _call(
        self, method: str, path: str, headers: dict[str, str], content: bytes, query: Mapping[str, str]
    ) -> tuple[int, bytes]:
        sent = headers | {"Host": "127.0.0.1", "X-Namespace": self._namespace}
        if content:
            sent["Content-Type"] = "application/json"
        scope: Message = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": urlencode(query).encode("ascii"),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
        }
        exchange = _Exchange(content)
        await self._application(scope, exchange.receive, exchange.send)
        return exchange.status, b"".join(exchange.parts)


class _Exchange:
    """One request and its response as an ASGI application sees them. The caller never disconnects: it cancels."""

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self.status = 0
        self.parts: list[bytes] = []

    async def receive(self) -> Message:
        content, self._content = self._content, None
        if content is None:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": content or b"", "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.parts.append(message.get("body", b""))


def _awaits_result(body: Json | None, query: Mapping[str, Any] | None) -> bool:
    """Whether a request waits for something that time may bring: a close, a result, the next event."""
    parameters = query or {}
    return bool(
        parameters.get("wait_seconds")
        or parameters.get("wait_new_event")
        or (body or {}).get("wait_for") == "completed"
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
