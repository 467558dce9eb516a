"""Which of several names was most likely meant by one that is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was most likely meant, whatever the case of its letters."""
    by_upper = {candidate.upper(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.upper(), by_upper, n=1, cutoff=0.6)
    return by_upper[close[0]] if close else None
