"""Parallel groups: steps that the code awaits together, and when it is worth waking it for them.

The code goes on when every leaf of the outermost group has ended, so it is woken once, then. A worker that looks
earlier sends the whole group again; steps that were opened before are not opened twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

PATH = "parallel_group_path"


def step_of(extra: Mapping[str, Any]) -> int | None:
    """The step that a member of a group must have; None outside groups."""
    path = extra.get(PATH)
    if not path:
        return None
    inner = path[-1]
    return int(inner["parallel_group_base_sequence"]) + int(inner["parallel_group_index"])


def outermost(extra: Mapping[str, Any]) -> range | None:
    """The steps of the group that the code waits for as a whole."""
    path = extra.get(PATH)
    if not path:
        return None
    outer = path[0]
    base = int(outer["parallel_group_base_sequence"])
    return range(base, base + int(outer["parallel_group_size"]))


def is_complete(payload: Mapping[str, Any], open_steps: Collection[int]) -> bool:
    """Whether the code must look at an ended step: it stands alone, or its whole group has ended."""
    group = outermost(payload)
    if group is None:
        return True
    ended = payload.get("sequence")
    return not any(step in group and step != ended for step in open_steps)
