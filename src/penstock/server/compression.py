"""Response compression, negotiated by `Accept-Encoding`."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

SMALLEST = 1024
_RAW_DEFLATE = -15
_GZIP = 31


def compressed(
    raw: bytes, headers: dict[str, str], scope: MutableMapping[str, Any]
) -> tuple[bytes, dict[str, str]]:
    """Compress a body that is large enough, with gzip (preferred) or deflate if the client accepts them."""
    if len(raw) < SMALLEST:
        return raw, headers
    headers = headers | {"Vary": "Accept-Encoding"}
    gzip_weight, deflate_weight = _taken(scope)
    if gzip_weight > 0 and gzip_weight >= deflate_weight:
        return gzip.compress(raw, compresslevel=1, mtime=0), headers | {"Content-Encoding": "gzip"}
    if deflate_weight > 0:
        packer = zlib.compressobj(1, zlib.DEFLATED, _RAW_DEFLATE)
        return packer.compress(raw) + packer.flush(), headers | {"Content-Encoding": "deflate"}
    return raw, headers


def compressing(
    parts: AsyncIterator[bytes], headers: dict[str, str], scope: MutableMapping[str, Any]
) -> tuple[AsyncIterator[bytes], dict[str, str]]:
    """Compress a streamed body with gzip if the client accepts it."""
    headers = headers | {"Vary": "Accept-Encoding"}
    if _taken(scope)[0] <= 0:
        return parts, headers
    return _packed(parts), headers | {"Content-Encoding": "gzip"}


async def _packed(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    async for part in parts:
        if packed := packer.compress(part):
            yield packed
    yield packer.flush()


def _taken(scope: MutableMapping[str, Any]) -> tuple[float, float]:
    """The client's quality values for gzip and deflate."""
    accepted = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
    weights = _weights(accepted.decode("latin-1"))
    anything = weights.get("*", 0.0)
    return weights.get("gzip", anything), weights.get("deflate", anything)


def _weights(header: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in header.split(",")[:20]:
        name, _, parameters = part.strip().partition(";")
        quality = 1.0
        key, _, value = parameters.strip().partition("=")
        if key.strip() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
        weights[name.strip().lower()] = quality
    return weights
