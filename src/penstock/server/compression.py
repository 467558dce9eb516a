"""Response compression, as the caller accepts it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import MutableMapping
from typing import Any

SMALLEST = 1024
_RAW_DEFLATE = -15


def compressed(
    raw: bytes, headers: dict[str, str], scope: MutableMapping[str, Any]
) -> tuple[bytes, dict[str, str]]:
    """The body, smaller if it is worth it and the caller takes gzip (preferred) or deflate."""
    if len(raw) < SMALLEST:
        return raw, headers
    headers = headers | {"Vary": "Accept-Encoding"}
    accepted = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
    weights = _weights(accepted.decode("latin-1"))
    anything = weights.get("*", 0.0)
    gzip_weight, deflate_weight = weights.get("gzip", anything), weights.get("deflate", anything)
    if gzip_weight > 0 and gzip_weight >= deflate_weight:
        return gzip.compress(raw, compresslevel=1, mtime=0), headers | {"Content-Encoding": "gzip"}
    if deflate_weight > 0:
        packer = zlib.compressobj(1, zlib.DEFLATED, _RAW_DEFLATE)
        return packer.compress(raw) + packer.flush(), headers | {"Content-Encoding": "deflate"}
    return raw, headers


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
