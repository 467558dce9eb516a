"""Headers of a call: context that travels with its arguments, such as a trace or a tenant.

They are the last value of the encoded arguments, a map with one well-known key. So they are stored, replayed, kept in
external storage and passed to every engine as arguments are, by servers and workers that know nothing of them. A
receiver takes them off before it looks at the arguments.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

from penstock.core import payload_codec
from penstock.core.model import Blob
from penstock.errors import InvalidInput

HEADERS_KEY: Final = "penstock.headers"


def has_headers(values: object) -> bool:
    """Whether the last of the decoded arguments of a call are headers."""
    if not isinstance(values, list | tuple) or not values:
        return False
    last = values[-1]
    return isinstance(last, dict) and len(last) == 1 and HEADERS_KEY in last


def without_headers(values: Any) -> Any:
    """Return the decoded arguments of a call without its headers."""
    return values[:-1] if has_headers(values) else values


def blob_without_headers(blob: Blob) -> Blob:
    """Return encoded arguments without their headers; those without headers, or damaged ones, unchanged."""
    try:
        if HEADERS_KEY.encode() not in binascii.a2b_base64(blob):
            return blob
        values = payload_codec.decode(blob)
    except (InvalidInput, ValueError):
        return blob
    return payload_codec.encode(without_headers(values)) if has_headers(values) else blob
