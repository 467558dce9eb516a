"""Requests to an application in the same process, without a socket: for tests and simulations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote, urlencode

from penstock.server.app import Application

Message = MutableMapping[str, Any]


async def send_request(
    application: Application,
    method: str,
    path: str,
    headers: Mapping[str, str],
    content: bytes = b"",
    query: Mapping[str, str] | None = None,
) -> tuple[int, bytes]:
    """Send one request from loopback; returns the status and the body of the response.

    Args:
        application: the application that answers.
        method: such as `GET`.
        path: the path, percent-encoded where necessary.
        headers: headers beside `Host` and the content type of a body.
        content: JSON, or nothing.
        query: parameters of the query string.
    """
    sent = dict(headers) | {"Host": "127.0.0.1"}
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
        "query_string": urlencode(query or {}).encode("ascii"),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in sent.items()],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
    }
    exchange = _Exchange(content)
    await application(scope, exchange.receive, exchange.send)
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
