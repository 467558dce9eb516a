"""Writes responses: the fields and headers that a plane adds to each, compression, and the ASGI messages.

What depends on the route alone (headers, the worker plane's fields) is computed when the server starts. Bodies are
compressed from `COMPRESSED_FROM_BYTES` on, with gzip (preferred) or deflate, as `Accept-Encoding` allows; a body that
is produced while it is sent is compressed with gzip only.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from penstock.core.permissions import Plane
from penstock.server.envelopes import SERVER_CAPABILITIES, control_body
from penstock.server.operation import Operation, Response
from penstock.server.request_reader import Scope
from penstock.server.versions import HEADERS, VERSIONS, WORKER_VERSION

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COMMON_HEADERS: Final = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
COMPRESSED_FROM_BYTES: Final = 1024
_RAW_DEFLATE: Final = -15
_GZIP: Final = 31
_ENCODER: Final = msgspec.json.Encoder()
_CAPABILITIES: Final = msgspec.Raw(_ENCODER.encode(SERVER_CAPABILITIES))


class ResponseWriter:
    """Writes the responses of one operation."""

    def __init__(self, operation: Operation, plane: Plane | None, *, compresses: bool) -> None:
        self._operation, self._plane = operation, plane
        self._compresses = compresses and operation.media != "application/octet-stream"
        self._headers = COMMON_HEADERS | ({HEADERS[plane]: VERSIONS[plane]} if plane is not None else {})

    async def write(self, response: Response, scope: Scope, send: Send) -> None:
        """Send the response; calls its `on_undelivered` if that fails."""
        body, headers = response.body, {**self._headers, **response.headers}
        if isinstance(body, AsyncIterator):
            await self._stream(body, response.status, headers, scope, send)
            return
        if isinstance(body, dict):
            if self._plane is Plane.WORKER:
                body.setdefault("protocol_version", WORKER_VERSION)
                body.setdefault("server_capabilities", _CAPABILITIES)
            elif self._operation.control is not None:
                body = control_body(self._operation.control, body, scope.get("path_params", {}))
        raw = body if isinstance(body, bytes) else _ENCODER.encode(body)
        if self._compresses and len(raw) >= COMPRESSED_FROM_BYTES:
            raw, headers = _compressed(raw, headers, scope)
        try:
            await respond(send, response.status, headers, raw)
        except BaseException:
            if response.on_undelivered is not None:
                response.on_undelivered()
            raise

    async def _stream(
        self, parts: AsyncIterator[bytes], status: int, headers: dict[str, str], scope: Scope, send: Send
    ) -> None:
        """Send a body as it is produced. A failure halfway breaks the connection, which clients see as truncation."""
        if self._compresses:
            headers = headers | {"Vary": "Accept-Encoding"}
            if _accepted_encodings(scope)[0] > 0:
                parts, headers = _packed(parts), headers | {"Content-Encoding": "gzip"}
        await send({"type": "http.response.start", "status": status, "headers": _lines(headers)})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def respond(send: Send, status: int, headers: Mapping[str, str], raw: bytes) -> None:
    """Send a whole response; its `Content-Length` is added."""
    headers = {**headers, "Content-Length": str(len(raw))}
    await send({"type": "http.response.start", "status": status, "headers": _lines(headers)})
    await send({"type": "http.response.body", "body": raw})


def _lines(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


def _compressed(raw: bytes, headers: dict[str, str], scope: Scope) -> tuple[bytes, dict[str, str]]:
    headers = headers | {"Vary": "Accept-Encoding"}
    gzip_quality, deflate_quality = _accepted_encodings(scope)
    if gzip_quality > 0 and gzip_quality >= deflate_quality:
        return gzip.compress(raw, compresslevel=1, mtime=0), headers | {"Content-Encoding": "gzip"}
    if deflate_quality > 0:
        packer = zlib.compressobj(1, zlib.DEFLATED, _RAW_DEFLATE)
        return packer.compress(raw) + packer.flush(), headers | {"Content-Encoding": "deflate"}
    return raw, headers


async def _packed(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    async for part in parts:
        if packed := packer.compress(part):
            yield packed
    yield packer.flush()


def _accepted_encodings(scope: Scope) -> tuple[float, float]:
    """The client's quality values for gzip and deflate."""
    header = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
    qualities: dict[str, float] = {}
    for part in header.decode("latin-1").split(",")[:20]:
        name, _, parameters = part.strip().partition(";")
        quality = 1.0
        key, _, value = parameters.strip().partition("=")
        if key.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
        qualities[name.strip().lower()] = quality
    anything = qualities.get("*", 0.0)
    return qualities.get("gzip", anything), qualities.get("deflate", anything)
