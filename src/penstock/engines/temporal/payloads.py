"""Values as Temporal payloads that programs in any language can read.

Our own server stores values in the codec of its contract. On Temporal the same plain data travels as `json/plain`, the
encoding that every SDK of Temporal reads and writes; bytes and None as `binary/plain` and `binary/null`. Codecs of a
`DataConverter` (encryption, compression) are applied before, as everywhere: what they produce is plain data, too.

One difference follows: bytes inside of a list or a dataclass become base64 text, and are bytes again only where a type
hint says so.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    BinaryNullPayloadConverter,
    BinaryPlainPayloadConverter,
    BinaryProtoPayloadConverter,
    CompositePayloadConverter,
    EncodingPayloadConverter,
    JSONProtoPayloadConverter,
)
from temporalio.converter import DataConverter as TemporalDataConverter

from penstock.core import payload_codec
from penstock.core.call_headers import HEADERS_KEY
from penstock.engines.temporal.failures import FailuresWithoutTracebacks, PenstockFailures
from penstock.sdk.converters import DataConverter, Envelope
from penstock.sdk.converters.from_plain import from_plain
from penstock.sdk.converters.payload_codecs import DATA_KEY, ENCODED_KEY
from penstock.sdk.converters.payload_converters import ENCODING_KEY
from penstock.sdk.converters.to_plain import to_plain
from penstock.wire.payloads import parse


class PlainJson(EncodingPayloadConverter):
    """`json/plain`, with the types that our converter knows."""

    @property
    def encoding(self) -> str:
        return "json/plain"

    def to_payload(self, value: Any) -> Payload:
        data = msgspec.json.encode(to_plain(value))
        return Payload(metadata={"encoding": b"json/plain"}, data=data)

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return from_plain(_with_bytes(msgspec.json.decode(payload.data)), type_hint)


def _with_bytes(plain: Any) -> Any:
    """Return a value of our codecs and converters with its bytes, which are base64 text in JSON."""
    if isinstance(plain, dict) and HEADERS_KEY in plain:
        return plain | {HEADERS_KEY: _with_bytes(plain[HEADERS_KEY])}
    if isinstance(plain, dict) and (isinstance(plain.get(ENCODED_KEY), list) or ENCODING_KEY in plain):
        data = plain.get(DATA_KEY)
        return plain | {DATA_KEY: binascii.a2b_base64(data)} if isinstance(data, str) else plain
    return plain


class PenstockPayloads(CompositePayloadConverter):
    """The payload converter of our Temporal clients and workers."""

    def __init__(self) -> None:
        super().__init__(
            BinaryNullPayloadConverter(),
            BinaryPlainPayloadConverter(),
            JSONProtoPayloadConverter(),
            BinaryProtoPayloadConverter(),
            PlainJson(),
        )


CONVERTER = TemporalDataConverter(
    payload_converter_class=PenstockPayloads, failure_converter_class=PenstockFailures
)
WITHOUT_TRACEBACKS = TemporalDataConverter(
    payload_converter_class=PenstockPayloads, failure_converter_class=FailuresWithoutTracebacks
)


def plain_arguments(given: object) -> list[Any]:
    """Return the arguments of a request as plain data, with codecs applied. Raises `ValidationFailed`.

    Args:
        given: an envelope, as the SDK sends it, or plain JSON, as commands do. Our server takes the same forms.
    """
    found = payload_codec.decode(parse(given, "input").blob)
    return found if isinstance(found, list) else [found]


def plain_value(envelope: Envelope | str | None) -> Any:
    """Return one encoded value as plain data, with codecs applied."""
    if envelope is None:
        return None
    return payload_codec.decode(envelope if isinstance(envelope, str) else envelope["blob"])


def envelope_of(plain: Any) -> Envelope:
    """Return plain data from a payload as it travels to our clients."""
    return {"codec": "avro", "blob": payload_codec.encode(plain)}


def plain_list(converter: DataConverter, values: Sequence[Any], what: str) -> list[Any]:
    """Return values as plain data. `what` names their receiver."""
    return [converter.dump(value, f"argument {number} of {what}") for number, value in enumerate(values, 1)]
