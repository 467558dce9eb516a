"""How long tests look for what is wrong: a little each time, and longer when asked.

`PENSTOCK_TEST_EFFORT=5 make test` tries five times as many examples, seeds and rounds.
"""

from __future__ import annotations

import os

EFFORT = float(os.environ.get("PENSTOCK_TEST_EFFORT", "1"))


def times(usual: int) -> int:
    """So many, at the usual effort; never none."""
    return max(1, round(usual * EFFORT))
