"""HTTP responses, assembled within size limits."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

HEADER_BYTES_MAX = 64 * 1024
HEADER_LINES_MAX = 256
BODY_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of a response, both compressed and decompressed."""
_GZIP = 31


class MalformedResponse(Exception):
    """The received bytes are not a valid HTTP response."""


class ResponseTooLarge(MalformedResponse):
    """The response exceeds the limits. A retry would return the same."""


@dataclass(slots=True)
class HttpResponse:
    status: int
    headers: Mapping[bytes, bytes]
    """By name in lower case."""
    body: bytes


class ResponseBuilder:
    """A response under construction."""

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
        """Count received bytes of any kind. A header line without an end is never reported as a header."""
        if self.came > HEADER_BYTES_MAX and not self.has_head:
            raise _too_many_headers()
        self.came += size
        if self.came > BODY_BYTES_MAX:
            raise _too_long()

    def begin(self) -> None:
        """Discard the headers of an informational response."""
        self.headers = {}

    def add_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers count towards the limits, but are otherwise ignored."""
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
    garbled = MalformedResponse("the response is not valid HTTP")
    garbled.__cause__ = cause
    return garbled


def _too_many_headers() -> ResponseTooLarge:
    return ResponseTooLarge(
        f"its headers are more than {HEADER_BYTES_MAX // 1024} KiB or {HEADER_LINES_MAX} lines"
    )


def _too_long() -> ResponseTooLarge:
    return ResponseTooLarge(f"it is longer than {BODY_BYTES_MAX // 1024**2} MiB")


def _unpacked(packed: bytes) -> bytes:
    """Decompress all members of a gzip stream, up to the size limit."""
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
