"""How the place of a value is written: `queue_options."gpu 1".heartbeat_timeout`."""

from __future__ import annotations

import json
import re

Path = tuple[str | int, ...]
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def shown_path(path: Path) -> str:
    """The steps as TOML would have them, on one line; places in a list in brackets."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if _BARE.fullmatch(step) else json.dumps(step, ensure_ascii=False)
            text += f".{name}" if text else name
    return text
