"""`DataConverter`: values to payloads and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self, cast

from penstock.core import payload_codec
from penstock.core.call_headers import HEADERS_KEY, has_headers, without_headers
from penstock.core.payload_codec import Unencodable
from penstock.errors import InvalidInput
from penstock.sdk.converters.conversion_errors import (
    ConversionError,
    ExternalPayloadError,
    HeadersTooLarge,
    PayloadTooLarge,
)
from penstock.sdk.converters.failure_converter import FailureConverter
from penstock.sdk.converters.from_plain import TypeMismatch, from_plain
from penstock.sdk.converters.headers import HEADERS_BYTES_MAX, Headers
from penstock.sdk.converters.payload_codecs import (
    AsyncPayloadCodec,
    PayloadCodec,
    ZlibCodec,
    apply_codecs,
    is_async,
    looks_encoded,
    undo_codecs,
)
from penstock.sdk.converters.payload_converters import (
    ENCODING_KEY,
    PayloadConverter,
    by_encoding,
    converted,
    escaped,
    is_converted,
    read,
    unescaped,
)
from penstock.sdk.converters.raw_value import RawValue
from penstock.sdk.converters.to_plain import NotSerializable, to_plain

Envelope = dict[str, str]
"""`{"codec": "avro", "blob": "…"}`"""

CODEC: Final = "avro"
PAYLOAD_BYTES_MAX: Final = 2_097_152
FETCH_ERROR: Final = "fetch_error"
"""The key of an envelope beside a reference whose payload could not be fetched."""


class DataConverter:
    """Encodes arguments and results as payloads, and decodes payloads by type hints.

    Subclass `PayloadCodec` rather than this class for encryption or compression, and `PayloadConverter` for types
    that have a form of their own.

    Args:
        codecs: applied in order to each value that is sent, and in reverse order to values received. Values
            compressed by zlib can be read even without a codec for it. Codecs whose methods are coroutines come last.
        payload_bytes_max: maximum size of one encoded payload. Larger values raise `PayloadTooLarge`.
        converters: asked in order for each argument and result, before the codecs; values that none of them takes are
            plain data. The encoding of a received value chooses the converter that reads it.
        headers_bytes_max: maximum size of the encoded headers of one call. Larger ones raise `HeadersTooLarge`.
        failure_converter: changes exceptions that are sent and received; None changes none.
    """

    def __init__(
        self,
        *,
        codecs: Sequence[PayloadCodec | AsyncPayloadCodec] = (),
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        converters: Sequence[PayloadConverter] = (),
        headers_bytes_max: int = HEADERS_BYTES_MAX,
        failure_converter: FailureConverter | None = None,
    ) -> None:
        for name, limit in (
            ("payload_bytes_max", payload_bytes_max),
            ("headers_bytes_max", headers_bytes_max),
        ):
            if limit < 1:
                raise ValueError(f"{name} must be at least 1, and is {limit}")
        self.codecs, self.async_codecs = _by_kind(codecs)
        self.converters = tuple(converters)
        self.payload_bytes_max = payload_bytes_max
        self.headers_bytes_max = headers_bytes_max
        self.failure_converter = failure_converter or FailureConverter()
        self._sends_plain = not self.codecs and not self.converters
        self._by_encoding = by_encoding(self.converters)
        self.external_bytes_max = 0
        """Size that a payload may have because it is kept in external storage; 0 without such a policy."""
        self._readers: dict[str, PayloadCodec] = {"zlib": ZlibCodec()} | {
            codec.name: codec for codec in self.codecs
        }

    def __repr__(self) -> str:
        names = [codec.name for codec in self.codecs]
        return f"DataConverter(codecs={names!r}, payload_bytes_max={self.payload_bytes_max})"

    def with_external(self, bytes_max: int) -> Self:
        """A copy that allows payloads of a size, because a policy keeps large ones in external storage."""
        made = copy.copy(self)
        made.external_bytes_max = bytes_max
        return made

    def with_each_codec(self, wrap: Callable[[PayloadCodec], PayloadCodec]) -> Self:
        """A copy whose codecs are wrapped."""
        made = copy.copy(self)
        made.codecs = tuple(wrap(each) for each in self.codecs)
        made._readers = self._readers | {codec.name: codec for codec in made.codecs}
        return made

    @property
    def is_plain(self) -> bool:
        """Whether no user code is involved, apart from the types that hints name."""
        return type(self) is DataConverter and self._sends_plain

    def encode(self, value: object, what: str) -> Envelope:
        """Encode one value. `what` names it in errors: `result of activity "charge"`."""
        blob = None if not self._sends_plain or _is_special(value) else _encoded_as_it_is(value)
        if blob is None:
            blob = _encoded(self._wrapped(value, what), what)
        return self._sized(blob, what)

    def encode_arguments(self, values: Sequence[object], what: str) -> Envelope:
        """Encode a list of arguments.

        Each passes through the codecs separately. `what` names their receiver: `activity "charge"`.
        """
        what = _taker(what)
        as_they_are = self._sends_plain and not any(map(_is_special, values))
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
        return self.decode_call(payload, hints, what=what)[0]

    def decode_call(
        self, payload: Mapping[str, Any] | str | None, hints: Sequence[Any] = (), *, what: str = "the payload"
    ) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments of a call, and its headers."""
        if payload is None:
            return [], {}
        what = _taker(what)
        sent = _decoded(payload, f"the arguments of {what}")
        return self.load_call(sent if isinstance(sent, list) else [sent], hints, what=what)

    def decode_raw_call(
        self, payload: Mapping[str, Any] | str | None, *, what: str = "the payload"
    ) -> tuple[list[RawValue], dict[str, Any]]:
        """Decode the arguments of a call whose receiver converts them itself, and its headers."""
        if payload is None:
            return [], {}
        sent = _decoded(payload, f"the arguments of {what}")
        return self.load_raw_call(sent if isinstance(sent, list) else [sent], what=what)

    def load_raw_call(
        self, plain: Sequence[Any], *, what: str = "the payload"
    ) -> tuple[list[RawValue], dict[str, Any]]:
        """Return arguments as received, and headers, from plain data that `dump` made."""
        headers = self._headers_of(plain, what)
        return [
            RawValue(undo_codecs(value, self._readers, f"argument {number} of {what}"), self)
            for number, value in enumerate(without_headers(plain), 1)
        ], headers

    def load_call(
        self, plain: Sequence[Any], hints: Sequence[Any] = (), *, what: str = "the payload"
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments and headers from plain data that `dump` made, here or elsewhere."""
        headers: dict[str, Any] = {}
        if has_headers(plain):
            headers, plain = self._headers_of(plain, what), plain[:-1]
        return [
            self._read(value, hints[at] if at < len(hints) else None, f"argument {at + 1} of {what}")
            for at, value in enumerate(plain)
        ], headers

    def _headers_of(self, plain: Sequence[Any], what: str) -> dict[str, Any]:
        if not has_headers(plain):
            return {}
        found: dict[str, Any] = self._read(plain[-1][HEADERS_KEY], dict[str, Any], f"the headers of {what}")
        return found

    def dump(self, value: object, what: str) -> Any:
        """Return one value as plain data, after the codecs. `what` names it in errors."""
        return self._wrapped(value, what)

    def load(self, plain: Any, hint: Any = None, *, what: str = "the payload") -> Any:
        """Return the hinted type from plain data that `dump` made, here or elsewhere. `what` names it in errors."""
        return self._read(plain, hint, what)

    def to_payload(self, value: object) -> Any:
        """Return one value as plain data, before the codecs. Named as in a payload converter of Temporal.

        Args:
            value: the value.
        """
        return self._plain(value, "the value")

    def from_payload(self, payload: Any, type_hint: Any = None) -> Any:
        """Return the hinted type from plain data. Named as in a payload converter of Temporal.

        Args:
            payload: plain data, such as `RawValue.payload`.
            type_hint: the type; None is what was encoded, as plain data if no payload converter reads it.
        """
        return self.as_type(payload, type_hint)

    def _wrapped(self, value: object, what: str) -> Any:
        if isinstance(value, Headers):
            return self._wrapped_headers(value, what)
        try:
            return apply_codecs(self._plain(value, what), self.codecs, what)
        except Unencodable as error:
            raise ConversionError(what, f"it {error}") from None

    def _plain(self, value: object, what: str) -> Any:
        if isinstance(value, RawValue):
            return value.value
        made = converted(value, self.converters, what) if self.converters else None
        if made is not None:
            return made
        try:
            return escaped(to_plain(value))
        except NotSerializable as error:
            raise ConversionError(
                what, error.problem if error.path else f"it {error.problem}", path=error.path
            ) from None
        except Unencodable as error:
            raise ConversionError(what, f"it {error}") from None

    def _wrapped_headers(self, headers: Headers, what: str) -> Any:
        sent = {HEADERS_KEY: self._wrapped(dict(headers), f"the headers in {what}")}
        size = len(_encoded(sent, what))
        if size > self.headers_bytes_max:
            raise HeadersTooLarge(f"the headers in {what}", size, self.headers_bytes_max)
        return sent

    def _read(self, value: Any, hint: Any, what: str) -> Any:
        return self.as_type(undo_codecs(value, self._readers, what), hint, what)

    def as_type(self, plain: Any, hint: Any, what: str = "the value") -> Any:
        """Return the hinted type from plain data on which the codecs are undone. `what` names it in errors."""
        if is_converted(plain):
            is_plain, inside = unescaped(plain)
            if not is_plain:
                return read(plain, self._by_encoding, hint, what)
            plain = inside
        try:
            return from_plain(plain, hint)
        except TypeMismatch as error:
            problem = error.problem if error.path else f"it {error.problem}"
            raise ConversionError(
                what, problem, path=error.path, expected=error.expected
            ) from error.__cause__

    def _sized(self, blob: str, what: str) -> Envelope:
        limit = max(self.payload_bytes_max, self.external_bytes_max)
        if len(blob) > limit:
            raise PayloadTooLarge(what, len(blob), limit)
        return {"codec": CODEC, "blob": blob}


def _by_kind(
    codecs: Sequence[PayloadCodec | AsyncPayloadCodec],
) -> tuple[tuple[PayloadCodec, ...], tuple[AsyncPayloadCodec, ...]]:
    """Return the codecs that are not asynchronous, and those that are, which must come last."""
    _check_names(codecs)
    first: list[PayloadCodec] = []
    later: list[AsyncPayloadCodec] = []
    for codec in codecs:
        if is_async(codec):
            later.append(codec)
        elif later:
            raise ValueError(
                "asynchronous codecs come after the others: they are applied where requests leave"
            )
        else:
            first.append(cast("PayloadCodec", codec))
    return tuple(first), tuple(later)


def _check_names(codecs: Sequence[PayloadCodec | AsyncPayloadCodec]) -> None:
    seen: set[str] = set()
    for codec in codecs:
        name = getattr(codec, "name", None)
        if not isinstance(name, str) or not name:
            raise TypeError(f"{type(codec).__name__} has no name: a codec names its encoding on the wire")
        if name in seen:
            raise ValueError(f'two codecs are named "{name}"')
        seen.add(name)


def _is_special(value: object) -> bool:
    """Whether a value cannot be encoded as it is: headers, and maps that a receiver would take for something else."""
    return isinstance(value, Mapping) and (
        looks_encoded(value) or ENCODING_KEY in value or isinstance(value, Headers)
    )


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
    if FETCH_ERROR in envelope:
        raise ExternalPayloadError(what, **envelope[FETCH_ERROR])
    if not isinstance(blob, str):
        held = " and ".join(f'"{key}"' for key in envelope if key != "codec") or "nothing"
        raise ConversionError(what, f'its envelope holds {held} instead of a "blob"')
    return blob


def _taker(what: str) -> str:
    return what.removeprefix("the ").removeprefix("arguments of ")


DEFAULT: Final = DataConverter()
