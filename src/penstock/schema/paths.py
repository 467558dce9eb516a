"""Paths of values in a configuration, as messages show them: `queue_options."gpu 1".heartbeat_timeout`."""

from __future__ import annotations

import json
import re

KeyPath = tuple[str | int, ...]
_KEY_LENGTH_MAX = 400
"""Longer than any valid key, so that different keys have different paths."""
_BARE = re.compile(rf"[A-Za-z0-9_-]{{1,{_KEY_LENGTH_MAX}}}")


def shown_path(path: KeyPath) -> str:
    """The path as TOML writes it, on one line and safe for a terminal; list indexes in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if _BARE.fullmatch(step) else _quoted(step)
            text += f".{name}" if text else name
    return text


def _quoted(key: str) -> str:
    if len(key) > _KEY_LENGTH_MAX:
        key = key[:_KEY_LENGTH_MAX] + "..."
    return json.dumps(key, ensure_ascii=not key.isprintable()).replace("\x7f", "\\u007f")
