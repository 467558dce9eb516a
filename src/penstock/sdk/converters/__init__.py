"""Data converters: Python values to payloads in the contract's codec, and back by type hints."""

from penstock.sdk.converters.conversion_errors import (
    ConversionError,
    ExternalPayloadError,
    HeadersTooLarge,
    PayloadTooLarge,
    UnreadablePayload,
)
from penstock.sdk.converters.data_converter import DEFAULT, DataConverter, Envelope
from penstock.sdk.converters.failure_converter import FailureConverter
from penstock.sdk.converters.payload_codecs import ENCODED_KEY, PayloadCodec, ZlibCodec
from penstock.sdk.converters.payload_converters import PayloadConverter

__all__ = [
    "DEFAULT",
    "ENCODED_KEY",
    "ConversionError",
    "DataConverter",
    "Envelope",
    "ExternalPayloadError",
    "FailureConverter",
    "HeadersTooLarge",
    "PayloadCodec",
    "PayloadConverter",
    "PayloadTooLarge",
    "UnreadablePayload",
    "ZlibCodec",
]
