"""Identity, as something that is handed in."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    def new_id(self) -> str:
        """A fresh id, ordered by time."""
        ...

    def token(self) -> str:
        """A secret that nobody can guess: it fences a lease."""
        ...
