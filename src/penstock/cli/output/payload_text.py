"""Opens the payloads in an answer, so that people read values and not base64."""

from __future__ import annotations

import base64
from typing import Any

_BLOB_START = "wwHioz3/VYAiN"


def opened(value: Any) -> Any:
    """Return the value inside an envelope or a bare blob; what cannot be opened is returned as it is.

    Of a payload in external storage, its reference and size are returned.
    """
    if isinstance(value, dict) and value.get("codec") == "avro" and isinstance(value.get("blob"), str):
        return _decoded(value["blob"], value)
    if isinstance(value, dict) and isinstance(value.get("external_payload"), dict):
        reference = value["external_payload"]
        return {"kept outside": reference.get("reference_id"), "size_bytes": reference.get("size_bytes")}
    if isinstance(value, str) and value.startswith(_BLOB_START):
        return _decoded(value, value)
    return value


def _decoded(blob: str, otherwise: Any) -> Any:
    from penstock.errors import PenstockError
    from penstock.wire.payloads import decode

    try:
        return _without_bytes(decode(blob))
    except PenstockError:
        return otherwise


def _without_bytes(value: Any) -> Any:
    """JSON has no bytes: they are shown as base64."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [_without_bytes(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_bytes(item) for key, item in value.items()}
    return value
