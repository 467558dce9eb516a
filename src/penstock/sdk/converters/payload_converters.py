"""Payload converters: types that become bytes of an encoding of their own, such as protobuf messages.

A converter is asked for each whole argument, result and detail, in the order in which the `DataConverter` has them;
values that none of them takes are plain data. A value that it takes is sent as a map with its encoding and its bytes,
to which the payload codecs apply as to any other value. The encoding chooses the converter that reads it, so a
program keeps the converters of all encodings that its histories hold, and puts the one that writes first.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from penstock.core import payload_codec
from penstock.sdk.converters.conversion_errors import ConversionError, UnreadablePayload

ENCODING_KEY: Final = "penstock.encoding"
"""Names the encoding of a value that a payload converter has written."""
_DATA_KEY: Final = "data"
_PLAIN: Final = "plain"
"""The encoding of plain data that has the key of encodings itself."""


class PayloadConverter(Protocol):
    """Converts values of some types to bytes, and back. It is called in workflow code, so it must be deterministic."""

    @property
    def encoding(self) -> str:
        """Name of the encoding on the wire. It must not change while stored values use it."""
        ...

    def to_data(self, value: Any) -> bytes | None:
        """Return the bytes of a value; None leaves it to the next converter."""

    def from_data(self, data: bytes, type_hint: Any) -> Any:
        """Return the value of the bytes. `type_hint` is the type that the receiver declares; None is none."""


def by_encoding(converters: Sequence[PayloadConverter]) -> dict[str, PayloadConverter]:
    """Return converters by the encodings that they read. Raises `TypeError` or `ValueError`."""
    named: dict[str, PayloadConverter] = {}
    for converter in converters:
        encoding = getattr(converter, "encoding", None)
        if not isinstance(encoding, str) or not encoding or encoding == _PLAIN:
            raise TypeError(f"{type(converter).__name__} has no encoding of its own: it is a text")
        if encoding in named:
            raise ValueError(f'two payload converters have the encoding "{encoding}"')
        named[encoding] = converter
    return named


def converted(value: Any, converters: Sequence[PayloadConverter], what: str) -> dict[str, Any] | None:
    """Return what is sent for a value that one of the converters takes; None if none does."""
    for converter in converters:
        try:
            data = converter.to_data(value)
        except Exception as error:
            raise ConversionError(
                what, f'the converter "{converter.encoding}" cannot write it: {_named(error)}'
            ) from error
        if data is not None:
            return {ENCODING_KEY: converter.encoding, _DATA_KEY: _bytes(data, converter, what)}
    return None


def escaped(plain: Any) -> Any:
    """Return plain data as it is sent: in a map of its own if it would be read as the work of a converter."""
    if not isinstance(plain, Mapping) or ENCODING_KEY not in plain:
        return plain
    return {ENCODING_KEY: _PLAIN, _DATA_KEY: binascii.a2b_base64(payload_codec.encode(plain))}


def is_converted(plain: Any) -> bool:
    """Whether plain data is the work of a payload converter."""
    return isinstance(plain, dict) and ENCODING_KEY in plain and isinstance(plain.get(_DATA_KEY), bytes)


def unescaped(sent: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether a map holds escaped plain data, with that data."""
    if sent[ENCODING_KEY] != _PLAIN:
        return False, None
    return True, payload_codec.decode(binascii.b2a_base64(sent[_DATA_KEY], newline=False).decode("ascii"))


def read(sent: Mapping[str, Any], converters: Mapping[str, PayloadConverter], hint: Any, what: str) -> Any:
    """Return the value of what a converter has written. Raises `UnreadablePayload`."""
    encoding = str(sent[ENCODING_KEY])
    converter = converters.get(encoding)
    if converter is None:
        known = ", ".join(f'"{each}"' for each in converters) or "none"
        raise UnreadablePayload(
            what,
            encoding,
            f'it has the encoding "{encoding}", and this DataConverter has converters for {known}',
        )
    try:
        return converter.from_data(sent[_DATA_KEY], hint)
    except Exception as error:
        raise UnreadablePayload(
            what, encoding, f'the converter "{encoding}" cannot read it: {_named(error)}'
        ) from error


def _bytes(data: object, converter: PayloadConverter, what: str) -> bytes:
    if not isinstance(data, bytes):
        raise ConversionError(
            what,
            f'the converter "{converter.encoding}" gave a {type(data).__name__} instead of bytes or None',
        )
    return data


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
