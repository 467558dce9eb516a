"""Data converters: Python values to payloads in the contract's codec, and back by type hints."""

from penstock.sdk.converters.conversion_errors import ConversionError, PayloadTooLarge
from penstock.sdk.converters.data_converter import DEFAULT, DataConverter, Envelope
from penstock.sdk.converters.payload_codecs import ENCODED_KEY, PayloadCodec, ZlibCodec

__all__ = [
    "DEFAULT",
    "ENCODED_KEY",
    "ConversionError",
    "DataConverter",
    "Envelope",
    "PayloadCodec",
    "PayloadTooLarge",
    "ZlibCodec",
]
