"""The collector of cycles while a process serves: what start-up made is not looked at again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_THRESHOLD = 10_000
"""So many more objects than before make a look worth while. Requests leave few cycles behind, and many objects."""


@contextmanager
def frozen_startup_heap() -> Iterator[None]:
    """Keep what lives now out of every look, and look less often; afterwards, all and as often as before.

    For whoever owns the process: what the program itself kept out is looked at again afterwards, too. A collector that
    was turned off, or told to look less often still, stays as it is.
    """
    young, *older = gc.get_threshold()
    if not young or not gc.isenabled():
        yield
        return
    gc.collect()  # what is dead by now would never be found
    gc.freeze()
    gc.set_threshold(max(young, YOUNG_THRESHOLD), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
        gc.unfreeze()


__all__ = ["frozen_startup_heap"]
