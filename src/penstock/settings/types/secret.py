"""A text that must never be shown."""

from __future__ import annotations

import hashlib
import hmac
from typing import NoReturn, Self

HIDDEN = "***"


class Secret:
    """Holds a credential; every way of printing it gives `***`.

    A plain class and not a dataclass, so that no encoder walks into its fields. `reveal` is the one way out:
    search for it to find every place that sees the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself. Hand it to the driver or the HMAC that needs it, and keep it nowhere else."""
        return self._text

    def matches(self, candidate: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(_digest(self._text), _digest(candidate))

    def __eq__(self, other: object) -> bool:
        return self.matches(other.reveal()) if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
