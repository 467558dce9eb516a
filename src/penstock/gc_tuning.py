"""Garbage collector tuning for a serving process: the startup heap is frozen."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_THRESHOLD = 10_000
"""Threshold of the youngest generation: requests allocate many objects and leave few cycles."""


@contextmanager
def frozen_startup_heap() -> Iterator[None]:
    """Exclude all objects that exist now from collections, and collect less often, while the block runs.

    Only for the owner of the process: `gc.unfreeze` at the end also releases objects that the program froze itself. A
    collector that is disabled, or has a higher threshold, is left alone.
    """
    young, *older = gc.get_threshold()
    if not young or not gc.isenabled():
        yield
        return
    gc.collect()  # garbage would be frozen, too
    gc.freeze()
    gc.set_threshold(max(young, YOUNG_THRESHOLD), *older)
    try:
        yield
    finally:
        gc.set_threshold(young, *older)
        gc.unfreeze()


__all__ = ["frozen_startup_heap"]
