"""A transport to a server in the same process: it calls the application without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Unpack

import msgspec

from penstock.sdk.connection.transport import CONTROL_PLANE, WORKER_PLANE, ControlOptions, Json, WorkOptions
from penstock.sdk.failures import refusal
from penstock.server.app import Application
from penstock.server.in_process import send_request
from penstock.testing.request_tracker import RequestTracker
from penstock.testing.skippable_clock import SkippableClock


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
        sent = headers | {"X-Namespace": self._namespace}
        status, raw = await send_request(self._application, method, f"/api{path}", sent, content, query)
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
