"""Routing keys of a run's activities, stored with its search attributes so that runs can be searched by them."""

from __future__ import annotations

import json

ROUTING_KEY = "RoutingKey"
"""The name of the field."""
KEYS_MAX = 50
KEY_CHARS_MAX = 255


def with_key(attributes: str, key: str) -> str:
    """The attributes with another routing key, unless there are too many or it is too long."""
    said = json.loads(attributes) if attributes != "{}" else {}
    keys = said.get(ROUTING_KEY, [])
    if not isinstance(keys, list) or key in keys or len(keys) >= KEYS_MAX or len(key) > KEY_CHARS_MAX:
        return attributes
    return json.dumps(said | {ROUTING_KEY: [*keys, key]}, ensure_ascii=False, separators=(",", ":"))


def without_keys(attributes: str) -> str:
    """The attributes without routing keys, for the next run of a chain."""
    if ROUTING_KEY not in attributes:
        return attributes
    said = json.loads(attributes)
    if isinstance(said.get(ROUTING_KEY), list):
        del said[ROUTING_KEY]
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))
