"""Priority on one scale of ten levels, and the five priority keys on it.

A level is 0 to 9; lower levels are dispatched first, and 5 is the default. The contract's flat `priority` is a level.
A `priority_key` is 1 to 5 with 3 as its default, as in Temporal. Keys are the odd levels, so that both defaults are the
same level and both orders hold on one queue. The even levels lie between two keys and have none.
"""

from __future__ import annotations

from typing import Final

LEVEL_DEFAULT: Final = 5


def level_of(priority_key: int) -> int:
    return 2 * priority_key - 1


PRIORITY_KEYS: Final = tuple((level + 1) // 2 if level % 2 else None for level in range(10))
"""The priority key of each level; None between two keys. A table, because every task and run that is shown reads it."""
