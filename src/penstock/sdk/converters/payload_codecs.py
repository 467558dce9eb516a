"""Payload codecs: compression, encryption and other transformations of encoded values.

A value that passed through codecs is sent as a map that names them under a well-known key, so that a receiver without
the codec can at least report what is missing.
"""

from __future__ import annotations

import binascii
import inspect
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeGuard

from penstock.core import payload_codec
from penstock.core.call_headers import HEADERS_KEY
from penstock.errors import InvalidInput
from penstock.sdk.converters.conversion_errors import ConversionError, UnreadablePayload

ENCODED_KEY: Final = "penstock.encoded"
"""Lists the codecs of a value in the order in which they were applied."""
DATA_KEY: Final = "data"
PROBLEM_KEY: Final = "penstock.problem"
"""Says why an asynchronous codec could not decode a value. It is never sent."""


class PayloadCodec(Protocol):
    """Transforms the bytes of a value before they are sent, and back after they are received.

    A codec that leaves a value alone returns the same bytes object. Its name is then not recorded, and it is not
    called when the value is decoded. Codecs may be called from several threads.
    """

    @property
    def name(self) -> str:
        """Name of the encoding on the wire. It must not change while stored values use it."""
        ...

    def encode(self, data: bytes) -> bytes:
        """Return the transformed bytes, or `data` itself to leave the value alone."""

    def decode(self, data: bytes) -> bytes:
        """Return the original bytes of `data`."""


class AsyncPayloadCodec(Protocol):
    """A `PayloadCodec` whose methods are coroutines, so that it may ask a key service.

    Clients and workers apply it where requests leave and answers arrive, after the codecs that are not asynchronous.
    """

    @property
    def name(self) -> str:
        """Name of the encoding on the wire. It must not change while stored values use it."""
        ...

    async def encode(self, data: bytes) -> bytes:
        """Return the transformed bytes, or `data` itself to leave the value alone."""

    async def decode(self, data: bytes) -> bytes:
        """Return the original bytes of `data`."""


def is_async(codec: PayloadCodec | AsyncPayloadCodec) -> TypeGuard[AsyncPayloadCodec]:
    """Whether the methods of a codec are coroutines. Raises `TypeError` if only one of them is."""
    kinds = [inspect.iscoroutinefunction(getattr(codec, step, None)) for step in ("encode", "decode")]
    if kinds[0] != kinds[1]:
        raise TypeError(
            f"{type(codec).__name__} has one asynchronous method: encode and decode are of one kind"
        )
    return kinds[0]


class ZlibCodec:
    """Compresses values of at least `min_size` bytes if that makes them smaller.

    Args:
        min_size: smaller values are left alone.
        level: zlib compression level.
        inflated_bytes_max: maximum size of a decompressed value.
    """

    name = "zlib"

    def __init__(
        self, *, min_size: int = 1024, level: int = 6, inflated_bytes_max: int = 268_435_456
    ) -> None:
        if min_size < 0:
            raise ValueError(f"min_size must not be negative, and is {min_size}")
        if not 0 <= level <= 9:
            raise ValueError(f"level must be from 0 to 9, and is {level}")
        self.min_size = min_size
        self.level = level
        self.inflated_bytes_max = inflated_bytes_max

    def encode(self, data: bytes) -> bytes:
        if len(data) < self.min_size:
            return data
        shorter = zlib.compress(data, self.level)
        return shorter if len(shorter) < len(data) else data

    def decode(self, data: bytes) -> bytes:
        inflating = zlib.decompressobj()
        whole = inflating.decompress(data, self.inflated_bytes_max)
        if not inflating.eof:
            raise ValueError(
                f"it is cut off, or more than {self.inflated_bytes_max:,} bytes without compression"
            )
        return whole


def apply_codecs(value: Any, codecs: Sequence[PayloadCodec], what: str) -> Any:
    """Return a plain value as it is sent: unchanged if no codec changes it."""
    names: list[str] = []
    if codecs:
        data = before = bytes_of(value)
        for codec in codecs:
            data = _applied(codec, "encode", before, what)
            if data is not before:
                names.append(codec.name)
            before = data
        if names:
            return {ENCODED_KEY: names, DATA_KEY: data}
    if looks_encoded(value):
        return {ENCODED_KEY: [], DATA_KEY: bytes_of(value)}
    return value


def looks_encoded(value: object) -> bool:
    """Whether a value of the user has a key by which a receiver would take it for something else."""
    return isinstance(value, Mapping) and (ENCODED_KEY in value or HEADERS_KEY in value)


def undo_codecs(value: Any, codecs: Mapping[str, PayloadCodec], what: str) -> Any:
    """Return the plain value of what was received."""
    if not isinstance(value, Mapping) or ENCODED_KEY not in value:
        return value
    names, data = value[ENCODED_KEY], value.get(DATA_KEY)
    if PROBLEM_KEY in value:
        raise UnreadablePayload(what, str(names[-1]), value[PROBLEM_KEY])
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list) or not isinstance(data, bytes):
        raise ConversionError(
            what, f'it has the key "{ENCODED_KEY}", but not the names and bytes that go with it'
        )
    for name in reversed(names):
        data = _applied(_codec(name, codecs, what), "decode", data, what)
    try:
        return payload_codec.decode(binascii.b2a_base64(data, newline=False).decode("ascii"))
    except InvalidInput as damage:
        raise ConversionError(what, f"it is damaged: {damage.details['payload_error']}") from None


def _codec(name: object, codecs: Mapping[str, PayloadCodec], what: str) -> PayloadCodec:
    codec = codecs.get(name) if isinstance(name, str) else None
    if codec is None:
        known = ", ".join(f'"{each}"' for each in codecs)
        raise UnreadablePayload(
            what,
            str(name),
            f'it is encoded as "{name}", and this DataConverter has codecs for {known} only',
        )
    return codec


def bytes_of(value: Any) -> bytes:
    return binascii.a2b_base64(payload_codec.encode(value))


def _applied(codec: PayloadCodec, step: str, data: bytes, what: str) -> bytes:
    try:
        changed = codec.encode(data) if step == "encode" else codec.decode(data)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        problem = f'the codec "{codec.name}" cannot {step} it: {cause}'
        if step == "decode":
            raise UnreadablePayload(what, codec.name, problem) from error
        raise ConversionError(what, problem) from error
    if not isinstance(changed, bytes):
        raise ConversionError(
            what, f'the codec "{codec.name}" gave a {type(changed).__name__} instead of bytes'
        )
    return changed
