"""The payload codec: JSON-like values in Avro single-object encoding, as base64.

The schema is fixed (record `Value` of namespace `durable_workflow.protocol`), so the codec is small enough to
be written out here. A blob is `C3 01`, the schema's fingerprint and one datum; a datum opens with the zig-zag
index of its branch.
"""

from __future__ import annotations

import binascii
import struct
from math import isfinite
from typing import Final

from penstock.core.model import Blob
from penstock.errors import InvalidInput, Reason

DEPTH_MAX: Final = 200
_HEADER: Final = bytes.fromhex("c301e2a33dff55802237")
_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
_VARINT_BYTES_MAX: Final = 10
_DOUBLE: Final = struct.Struct("<d")


class Unencodable(Exception):
    """A value that the schema cannot represent; the message says which and why."""


class _Branch:
    """The branches of the schema's union, as their leading byte."""

    NULL: Final = 0x00
    BOOLEAN: Final = 0x02
    LONG: Final = 0x04
    DOUBLE: Final = 0x06
    BYTES: Final = 0x08
    STRING: Final = 0x0A
    ARRAY: Final = 0x0C
    MAP: Final = 0x0E


def encode(value: object) -> Blob:
    """Encode None, bool, int (64 bit), finite float, bytes, str, list and dict with text keys.

    Anything else raises `Unencodable`, which says what and why.
    """
    out = bytearray(_HEADER)
    try:
        _write(out, value, DEPTH_MAX)
    except RecursionError:
        raise Unencodable("is nested too deeply") from None
    return Blob(binascii.b2a_base64(out, newline=False).decode("ascii"))


def decode(blob: str) -> object:
    """The value inside a blob. Damage of any kind raises `InvalidInput`; nothing is guessed.

    Work and memory are bounded by the length of the blob.
    """
    reader = _Reader(unframe(blob))
    try:
        value = reader.value(DEPTH_MAX)
    except RecursionError:
        raise _damage("it is nested too deeply") from None
    if reader.at != len(reader.data):
        raise _damage("there are bytes after the value")
    return value


# Writing


def _write(out: bytearray, value: object, depth_left: int) -> None:
    if isinstance(value, str):
        out.append(_Branch.STRING)
        _write_text(out, value)
    elif isinstance(value, list):
        out.append(_Branch.ARRAY)
        _write_items(out, value, depth_left)
    elif isinstance(value, dict):
        out.append(_Branch.MAP)
        _write_entries(out, value, depth_left)
    else:
        _write_scalar(out, value)


def _write_scalar(out: bytearray, value: object) -> None:
    match value:
        case None:
            out.append(_Branch.NULL)
        case bool():
            out += bytes((_Branch.BOOLEAN, value))
        case int():
            if not _LONG_MIN <= value <= _LONG_MAX:
                raise Unencodable("has an integer outside the signed 64-bit range")
            out.append(_Branch.LONG)
            _write_long(out, value)
        case float():
            if not isfinite(value):
                raise Unencodable("has a number that is not finite")
            out.append(_Branch.DOUBLE)
            out += _DOUBLE.pack(value)
        case bytes():
            out.append(_Branch.BYTES)
            _write_bytes(out, value)
        case _:
            raise Unencodable(f"has a {type(value).__name__}, which is not a JSON value")


def _write_items(out: bytearray, items: list[object], depth_left: int) -> None:
    if not depth_left:
        raise Unencodable(f"is nested deeper than {DEPTH_MAX} levels")
    if items:
        _write_long(out, len(items))
        for item in items:
            _write(out, item, depth_left - 1)
    out.append(0)


def _write_entries(out: bytearray, entries: dict[object, object], depth_left: int) -> None:
    if not depth_left:
        raise Unencodable(f"is nested deeper than {DEPTH_MAX} levels")
    if entries:
        _write_long(out, len(entries))
        for key, item in entries.items():
            if not isinstance(key, str):
                raise Unencodable("has a key that is not text")
            _write_text(out, key)
            _write(out, item, depth_left - 1)
    out.append(0)


def _write_text(out: bytearray, text: str) -> None:
    try:
        _write_bytes(out, text.encode("utf-8"))
    except UnicodeEncodeError:
        raise Unencodable("has text with half of a surrogate pair") from None


def _write_bytes(out: bytearray, data: bytes) -> None:
    _write_long(out, len(data))
    out += data


def _write_long(out: bytearray, number: int) -> None:
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


# Reading


def unframe(blob: str) -> bytes:
    """The bytes of the datum; the base64 must be canonical."""
    try:
        raw = binascii.a2b_base64(blob, strict_mode=True)
    except ValueError:
        raise _damage("it is not strict base64") from None
    if binascii.b2a_base64(raw, newline=False).decode("ascii") != blob:
        raise _damage("it is not strict base64")
    if not raw.startswith(_HEADER):
        raise _damage("it does not open with the marker and fingerprint of the payload schema")
    if len(raw) == len(_HEADER):
        raise _damage("it ends before its value")
    return raw[len(_HEADER) :]


class _Reader:
    """A cursor over a datum. Counts are checked against the remaining bytes before anything is allocated."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def value(self, depth_left: int) -> object:
        match self.byte():
            case _Branch.NULL:
                return None
            case _Branch.BOOLEAN:
                return self.boolean()
            case _Branch.LONG:
                return self.long()
            case _Branch.DOUBLE:
                return self.double()
            case _Branch.BYTES:
                return self.sized_bytes()
            case _Branch.STRING:
                return self.text()
            case _Branch.ARRAY:
                return self.array(depth_left)
            case _Branch.MAP:
                return self.map(depth_left)
            case _:
                raise _damage("it names a kind of value that the schema does not have")

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise _damage("it ends before its value does")
        self.at += 1
        return self.data[self.at - 1]

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise _damage("it names a length that it does not have")
        self.at += count
        return self.data[self.at - count : self.at]

    def long(self) -> int:
        raw = self.byte()
        if raw > 0x7F:
            raw = self.long_rest(raw & 0x7F)
        return (raw >> 1) ^ -(raw & 1)

    def long_rest(self, raw: int) -> int:
        for shift in range(7, 7 * _VARINT_BYTES_MAX, 7):
            byte = self.byte()
            raw |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                break
        else:
            raise _damage("it has an integer outside the signed 64-bit range")
        if raw >> 64:
            raise _damage("it has an integer outside the signed 64-bit range")
        return raw

    def boolean(self) -> bool:
        byte = self.byte()
        if byte > 1:
            raise _damage("it has a boolean that is neither true nor false")
        return byte == 1

    def double(self) -> float:
        number: float = _DOUBLE.unpack(self.take(8))[0]
        if not isfinite(number):
            raise _damage("it has a number that is not finite")
        return number

    def sized_bytes(self) -> bytes:
        return self.take(self.long())

    def text(self) -> str:
        try:
            return self.sized_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise _damage("it has text that is not UTF-8") from None

    def array(self, depth_left: int) -> list[object]:
        items: list[object] = []
        while block := self.block(depth_left, item_bytes_min=1):
            count, end = block
            for _ in range(count):
                item = self.value(depth_left - 1)
                items.append(item)
            self.finish_block(end)
        return items

    def map(self, depth_left: int) -> dict[str, object]:
        entries: dict[str, object] = {}
        while block := self.block(depth_left, item_bytes_min=2):
            count, end = block
            for _ in range(count):
                key = self.text()
                if key in entries:
                    raise _damage("it has one key twice in a map")
                entries[key] = self.value(depth_left - 1)
            self.finish_block(end)
        return entries

    def block(self, depth_left: int, *, item_bytes_min: int) -> tuple[int, int | None] | None:
        """The item count of the next block and its end, if it states one; None after the last block."""
        if not depth_left:
            raise _damage(f"it is nested deeper than {DEPTH_MAX} levels")
        count, end = self.long(), None
        if count == 0:
            return None
        if count < 0:
            count, size = -count, self.long()
            if not 0 <= size <= len(self.data) - self.at:
                raise _damage("it names a length that it does not have")
            end = self.at + size
        if count * item_bytes_min > len(self.data) - self.at:
            raise _damage("it names a length that it does not have")
        return count, end

    def finish_block(self, end: int | None) -> None:
        if end is not None and self.at != end:
            raise _damage("it has a block of another length than it says")


def _damage(what: str) -> InvalidInput:
    return InvalidInput(Reason.MALFORMED_REQUEST, f"The payload is damaged: {what}.", payload_error=what)
