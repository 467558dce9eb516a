"""An answer: what has come of it so far, within bounds, and the whole."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

MOST_HEADER_BYTES = 64 * 1024
MOST_HEADER_LINES = 256
MOST_BYTES = 256 * 1024 * 1024
"""Of a whole answer, packed and unpacked."""
_GZIP = 31


class Garbled(Exception):
    """What came is no answer of HTTP."""


class TooMuch(Garbled):
    """An answer beyond all bounds. Asking again brings the same."""


@dataclass(slots=True)
class Answer:
    status: int
    headers: Mapping[bytes, bytes]
    """By their names in small letters."""
    body: bytes


class Draft:
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
        if self.came > MOST_HEADER_BYTES and not self.has_head:
            raise _too_many_headers()
        self.came += size
        if self.came > MOST_BYTES:
            raise _too_long()

    def begin(self) -> None:
        """Forget the headers of what came before the answer itself."""
        self.headers = {}

    def add_header(self, name: bytes, value: bytes) -> None:
        """What stands behind the body counts, but changes nothing any more."""
        self._header_lines += 1
        self._header_bytes += len(name) + len(value)
        if self._header_lines > MOST_HEADER_LINES or self._header_bytes > MOST_HEADER_BYTES:
            raise _too_many_headers()
        if not self.has_head:
            self.headers[name.lower()] = value

    def add_body(self, part: bytes) -> None:
        self._parts.append(part)

    def whole(self, status: int) -> Answer:
        body = b"".join(self._parts)
        if self.headers.get(b"content-encoding", b"").lower() == b"gzip":
            body = _unpacked(body)
        return Answer(status, self.headers, body)


def no_http(cause: Exception) -> Garbled:
    garbled = Garbled("it does not speak HTTP as it should")
    garbled.__cause__ = cause
    return garbled


def _too_many_headers() -> TooMuch:
    return TooMuch(f"its headers are more than {MOST_HEADER_BYTES // 1024} KiB or {MOST_HEADER_LINES} lines")


def _too_long() -> TooMuch:
    return TooMuch(f"it is longer than {MOST_BYTES // 1024**2} MiB")


def _unpacked(packed: bytes) -> bytes:
    """All members of a gzip, one after the other. Never more is unpacked than may be."""
    parts, room = [], MOST_BYTES
    while packed:
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            part = member.decompress(packed, room + 1)
        except zlib.error as error:
            raise no_http(error) from error
        room -= len(part)
        if room < 0:
            raise _too_long()
        if not member.eof:
            raise no_http(EOFError("the end of a gzip is missing"))
        parts.append(part)
        packed = member.unused_data
    return b"".join(parts)
