"""How values travel: Python values as plain data in the contract's payload codec, and back by type hints."""

from penstock.sdk.converting.converter import DEFAULT, DataConverter, Envelope
from penstock.sdk.converting.encoding import ENCODED_KEY, PayloadCodec, ZlibCodec
from penstock.sdk.converting.refusing import ConversionError, PayloadTooLarge

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
