"""Upper bounds of worker options, for files and for code."""

from __future__ import annotations

SLOTS_MAX = 1_000_000
POLLS_MAX = 1_000
RATE_LEAST = 0.000001
RATE_MAX = 1_000_000
