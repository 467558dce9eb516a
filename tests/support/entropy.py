"""Identity that counts, so that a test can name what will be made."""

from __future__ import annotations

import itertools


class CountingEntropy:
    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._tokens = itertools.count(1)

    def new_id(self) -> str:
        return f"run{next(self._ids):04d}"

    def token(self) -> str:
        return f"secret{next(self._tokens):04d}"
