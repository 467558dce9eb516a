"""An answer: what has come of it so far, within bounds, and the whole."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

HEADER_BYTES_MAX = 64 * 1024
HEADER_LINES_MAX = 256
BODY_BYTES_MAX = 256 * 1024 * 1024
"""Of a whole answer, packed and unpacked."""
_GZIP = 31


class MalformedResponse(Exception):
    """What came is no answer of HTTP."""


class ResponseTooLarge(MalformedResponse):
    """An answer beyond all bounds. Asking again brings the same."""


@dataclass(slots=True)
class HttpResponse:
    status: int
    headers: Mapping[bytes, bytes]
    """By their names in small letters."""
    body: bytes


class ResponseBuilder:
    """What has come since a request was sent."""

    __slots__ = ("_header_bytes", "_header_lines", "_parts", "came", "has_head", "headers")

    def __init__(self) -> None:
        self.came = 0
        self.headers: dict[bytes, bytes] = {}
        self.has_head = False
        self._header_bytes = 0
        self._header_lines = 0
        self._parts: list[bytes] = []

    @property
    def ends_with_the_connection(self) -> bool:
        return self.has_head and not {b"content-length", b"transfer-encoding"} & self.headers.keys()

    def count(self, size: int) -> None:
        """So many bytes come, of whatever. A line without an end is never told as a header."""
        if self.came > HEADER_BYTES_MAX and not self.has_head:
            raise _too_many_headers()
        self.came += size
        if self.came > BODY_BYTES_MAX:
            raise _too_long()

    def begin(self) -> None:
        """Forget the headers of what came before the answer itself."""
        self.headers = {}

    def add_header(self, name: bytes, value: bytes) -> None:
        """What stands behind the body counts, but changes nothing any more."""
        self._header_lines += 1
        self._header_bytes += len(name) + len(value)
        if self._header_lines > HEADER_LINES_MAX or self._header_bytes > HEADER_BYTES_MAX:
            raise _too_many_headers()
        if not self.has_head:
            self.headers[name.lower()] = value

    def add_body(self, part: bytes) -> None:
        self._parts.append(part)

    def whole(self, status: int) -> HttpResponse:
        body = b"".join(self._parts)
        if self.headers.get(b"content-encoding", b"").lower() == b"gzip":
            body = _unpacked(body)
        return HttpResponse(status, self.headers, body)


def not_http(cause: Exception) -> MalformedResponse:
    garbled = MalformedResponse("it does not speak HTTP as it should")
    garbled.__cause__ = cause
    return garbled


def _too_many_headers() -> ResponseTooLarge:
    return ResponseTooLarge(
        f"its headers are more than {HEADER_BYTES_MAX // 1024} KiB or {HEADER_LINES_MAX} lines"
    )


def _too_long() -> ResponseTooLarge:
    return ResponseTooLarge(f"it is longer than {BODY_BYTES_MAX // 1024**2} MiB")


def _unpacked(packed: bytes) -> bytes:
    """All members of a gzip, one after the other. Never more is unpacked than may be."""
    parts, room = [], BODY_BYTES_MAX
    while packed:
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            part = member.decompress(packed, room + 1)
        except zlib.error as error:
            raise not_http(error) from error
        room -= len(part)
        if room < 0:
            raise _too_long()
        if not member.eof:
            raise not_http(EOFError("the end of a gzip is missing"))
        parts.append(part)
        packed = member.unused_data
    return b"".join(parts)
