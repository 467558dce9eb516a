"""`DataConverter`: values to payloads and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.core import payload_codec
from penstock.core.payload_codec import Unencodable
from penstock.errors import InvalidInput
from penstock.sdk.converters.conversion_errors import ConversionError, PayloadTooLarge
from penstock.sdk.converters.from_plain import TypeMismatch, from_plain
from penstock.sdk.converters.payload_codecs import (
    ENCODED_KEY,
    PayloadCodec,
    ZlibCodec,
    apply_codecs,
    undo_codecs,
)
from penstock.sdk.converters.to_plain import NotSerializable, to_plain

Envelope = dict[str, str]
"""`{"codec": "avro", "blob": "…"}`"""

CODEC: Final = "avro"
PAYLOAD_BYTES_MAX: Final = 2_097_152


class DataConverter:
    """Encodes arguments and results as payloads, and decodes payloads by type hints.

    Subclass `PayloadCodec` rather than this class for encryption or compression.

    Args:
        codecs: applied in order to each value that is sent, and in reverse order to values received. Values
            compressed by zlib can be read even without a codec for it.
        payload_bytes_max: maximum size of one encoded payload. Larger values raise `PayloadTooLarge`.
    """

    def __init__(
        self, *, codecs: Sequence[PayloadCodec] = (), payload_bytes_max: int = PAYLOAD_BYTES_MAX
    ) -> None:
        if payload_bytes_max < 1:
            raise ValueError(f"payload_bytes_max must be at least 1, and is {payload_bytes_max}")
        self.codecs = tuple(codecs)
        self.payload_bytes_max = payload_bytes_max
        self._readers: dict[str, PayloadCodec] = {"zlib": ZlibCodec()} | _by_name(self.codecs)

    def __repr__(self) -> str:
        names = [codec.name for codec in self.codecs]
        return f"DataConverter(codecs={names!r}, payload_bytes_max={self.payload_bytes_max})"

    @property
    def is_plain(self) -> bool:
        """Whether no user code is involved, apart from the types that hints name."""
        return type(self) is DataConverter and not self.codecs

    def encode(self, value: object, what: str) -> Envelope:
        """Encode one value. `what` names it in errors: `result of activity "charge"`."""
        blob = None if self.codecs or _looks_encoded(value) else _encoded_as_it_is(value)
        if blob is None:
            blob = _encoded(self._wrapped(value, what), what)
        return self._sized(blob, what)

    def encode_arguments(self, values: Sequence[object], what: str) -> Envelope:
        """Encode a list of arguments.

        Each passes through the codecs separately. `what` names their receiver: `activity "charge"`.
        """
        what = _taker(what)
        as_they_are = not self.codecs and not any(map(_looks_encoded, values))
        blob = _encoded_as_it_is(list(values)) if as_they_are else None
        if blob is None:
            sent = [
                self._wrapped(value, f"argument {number} of {what}") for number, value in enumerate(values, 1)
            ]
            blob = _encoded(sent, f"the arguments of {what}")
        return self._sized(blob, f"the arguments of {what}")

    def decode(
        self, payload: Mapping[str, Any] | str | None, hint: Any = None, *, what: str = "the payload"
    ) -> Any:
        """Decode one value to the hinted type; no payload gives None. `what` names it in errors."""
        if payload is None:
            return None
        return self._read(_decoded(payload, what), hint, what)

    def decode_arguments(
        self, payload: Mapping[str, Any] | str | None, hints: Sequence[Any] = (), *, what: str = "the payload"
    ) -> list[Any]:
        """Decode all arguments that were sent; those without a hint are plain data. `what` names their receiver."""
        if payload is None:
            return []
        what = _taker(what)
        sent = _decoded(payload, f"the arguments of {what}")
        values = sent if isinstance(sent, list) else [sent]
        return [
            self._read(value, hints[at] if at < len(hints) else None, f"argument {at + 1} of {what}")
            for at, value in enumerate(values)
        ]

    def _wrapped(self, value: object, what: str) -> Any:
        try:
            return apply_codecs(to_plain(value), self.codecs, what)
        except NotSerializable as error:
            raise ConversionError(
                what, error.problem if error.path else f"it {error.problem}", path=error.path
            ) from None
        except Unencodable as error:
            raise ConversionError(what, f"it {error}") from None

    def _read(self, value: Any, hint: Any, what: str) -> Any:
        inside = undo_codecs(value, self._readers, what)
        try:
            return from_plain(inside, hint)
        except TypeMismatch as error:
            problem = error.problem if error.path else f"it {error.problem}"
            raise ConversionError(
                what, problem, path=error.path, expected=error.expected
            ) from error.__cause__

    def _sized(self, blob: str, what: str) -> Envelope:
        if len(blob) > self.payload_bytes_max:
            raise PayloadTooLarge(what, len(blob), self.payload_bytes_max)
        return {"codec": CODEC, "blob": blob}


def _by_name(codecs: Sequence[PayloadCodec]) -> dict[str, PayloadCodec]:
    named: dict[str, PayloadCodec] = {}
    for codec in codecs:
        name = getattr(codec, "name", None)
        if not isinstance(name, str) or not name:
            raise TypeError(f"{type(codec).__name__} has no name: a codec names its encoding on the wire")
        if name in named:
            raise ValueError(f'two codecs are named "{name}"')
        named[name] = codec
    return named


def _looks_encoded(value: object) -> bool:
    return isinstance(value, Mapping) and ENCODED_KEY in value


def _encoded_as_it_is(value: object) -> str | None:
    """Encode a value that is plain already, as most are, without copying it first; None if it is not plain."""
    try:
        return payload_codec.encode(value)
    except Unencodable:
        return None


def _encoded(value: Any, what: str) -> str:
    try:
        return payload_codec.encode(value)
    except Unencodable as error:
        raise ConversionError(what, f"it {error}") from None


def _decoded(payload: Mapping[str, Any] | str, what: str) -> Any:
    try:
        return payload_codec.decode(payload if isinstance(payload, str) else _blob_of(payload, what))
    except InvalidInput as damage:
        raise ConversionError(what, f"it is damaged: {damage.details['payload_error']}") from None


def _blob_of(envelope: Mapping[str, Any], what: str) -> str:
    codec, blob = envelope.get("codec"), envelope.get("blob")
    if codec != CODEC:
        raise ConversionError(what, f'it was written by the codec "{codec}", and only "{CODEC}" can be read')
    if not isinstance(blob, str):
        held = " and ".join(f'"{key}"' for key in envelope if key != "codec") or "nothing"
        raise ConversionError(what, f'its envelope holds {held} instead of a "blob"')
    return blob


def _taker(what: str) -> str:
    return what.removeprefix("the ").removeprefix("arguments of ")


DEFAULT: Final = DataConverter()
