"""Payload codecs inside of workflow code: the determinism guard does not watch them.

Encryption reads clocks and random numbers. What it makes of a value is sent and never compared with the history, and
what it gives back is the value, so none of it reaches the code of the run.
"""

from __future__ import annotations

from penstock.sdk.converters import DataConverter, PayloadCodec
from penstock.sdk.replay.determinism_guard import unguarded


class UnguardedCodec:
    """A codec that runs without the guard.

    Args:
        codec: the codec.
    """

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    @property
    def name(self) -> str:
        return self._codec.name

    def encode(self, data: bytes) -> bytes:
        with unguarded():
            return self._codec.encode(data)

    def decode(self, data: bytes) -> bytes:
        with unguarded():
            return self._codec.decode(data)


def with_unguarded_codecs(converter: DataConverter) -> DataConverter:
    """Return a converter for workflow code.

    Args:
        converter: the converter of the worker; without codecs it is returned as it is.
    """
    return converter.with_each_codec(UnguardedCodec) if converter.codecs else converter
