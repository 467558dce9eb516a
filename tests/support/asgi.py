"""Calls an ASGI application in process, byte for byte as asked: also what no honest client would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

Message = MutableMapping[str, Any]
App = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and how much of the request's body was taken before."""

    status: int
    headers: Mapping[str, str]
    raw: bytes
    chunks_read: int

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def reason(self) -> str | None:
        found = self.json.get("reason")
        return None if found is None else str(found)


async def call(
    app: App,
    method: str,
    target: str,
    *,
    headers: Iterable[tuple[str, str | bytes]] = (),
    chunks: Sequence[bytes] = (),
    hangs_up: bool = False,
    timeout: float = 30,
) -> Answer:
    """Send one request. `target` is the path and query as they stand on the wire, so escape it yourself."""
    path, _, query = target.partition("?")
    read = 0
    sent: list[Message] = []
    silence = asyncio.Event()

    async def receive() -> Message:
        nonlocal read
        if read < max(1, len(chunks)):
            read += 1
            body = chunks[read - 1] if chunks else b""
            return {"type": "http.request", "body": body, "more_body": hangs_up or read < len(chunks)}
        if hangs_up:
            return {"type": "http.disconnect"}
        await silence.wait()
        raise AssertionError("nobody breaks the silence")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Message = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(name.lower().encode(), _bytes(value)) for name, value in headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
    }
    await asyncio.wait_for(app(scope, receive, send), timeout)
    if not sent:
        return Answer(0, {}, b"{}", read)
    found = {name.decode().lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(each["body"] for each in sent[1:]), read)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
