"""The source of ids and tokens, injected so that tests are deterministic."""

from __future__ import annotations

from typing import Protocol


class Entropy(Protocol):
    def new_id(self) -> str:
        """A new id, ordered by time."""
        ...

    def token(self) -> str:
        """An unguessable token that fences a lease."""
        ...
