"""How a value that breaks its rule is reported while it is being read."""

from __future__ import annotations

import json

SHOWN_CHARACTERS_MAX = 60


class InvalidValue(Exception):
    """The value breaks its rule. The message follows the setting's name: "must be a whole number …"."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def quoted(text: str, most: int = SHOWN_CHARACTERS_MAX) -> str:
    """The text in quotes, short and with every control character escaped, safe for a terminal or a log."""
    if len(text) > most:
        text = text[:most] + "..."
    return json.dumps(text).replace("\x7f", "\\u007f")
