"""The collector of cycles in a process that serves to its end: what start-up made is not looked at again."""

from __future__ import annotations

import gc

YOUNG = 10_000
"""So many more objects than before make a look worth while. Requests leave few cycles behind, and many objects."""


def settle() -> None:
    """Keep what is there out of every later look, and look less often.

    For whoever owns the process. A collector that was turned off, or told to look less often still, stays as it is.
    """
    gc.freeze()
    young, *older = gc.get_threshold()
    if young:
        gc.set_threshold(max(young, YOUNG), *older)


__all__ = ["settle"]
