"""Parallel groups and selections: steps that stepwise code awaits together, as commands describe them.

Each member has a path from the outermost group to its own. In every entry, base plus index is the member's step. The
outermost entry says whether the code waits for all members (a group) or for the first (a selection).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PATH = "parallel_group_path"
BASE = "parallel_group_base_sequence"
_ID = "parallel_group_id"
_INDEX = "parallel_group_index"
_SIZE = "parallel_group_size"
_MEMBER_BASE = "selection_member_base_sequence"


def step_of(extra: Mapping[str, Any]) -> int | None:
    """The step number of a group member; None outside of groups."""
    path = extra.get(PATH)
    return None if not path else int(path[-1][BASE]) + int(path[-1][_INDEX])


def is_consistent(extra: Mapping[str, Any]) -> bool:
    """Whether all entries of a member's path give the same step."""
    return len({int(entry[BASE]) + int(entry[_INDEX]) for entry in extra.get(PATH, ())}) <= 1


def outermost(payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    path = payload.get(PATH)
    return path[0] if path else None


def group_id(entry: Mapping[str, Any]) -> str:
    return str(entry.get(_ID) or f"{entry[BASE]}:{entry[_SIZE]}")


def base(entry: Mapping[str, Any]) -> int:
    return int(entry[BASE])


def size(entry: Mapping[str, Any]) -> int:
    return int(entry[_SIZE])


def is_selection(entry: Mapping[str, Any]) -> bool:
    return entry.get("parallel_group_mode") == "select"


def moved(extra: Mapping[str, Any], by: int) -> dict[str, Any]:
    """The member with step numbers shifted, after the worker computed them wrongly."""
    entry = _moved(extra, by)
    if PATH in extra:
        entry[PATH] = [_moved(each, by) for each in extra[PATH]]
    return entry


def _moved(entry: Mapping[str, Any], by: int) -> dict[str, Any]:
    changed = dict(entry)
    for name in (BASE, _MEMBER_BASE):
        if name in changed:
            changed[name] = int(changed[name]) + by
    if isinstance(changed.get(_ID), str):
        changed[_ID] = _moved_id(changed[_ID], by)
    return changed


def _moved_id(identifier: str, by: int) -> str:
    """Shift the base in a group id, which ends in base and size."""
    name, *numbers = identifier.rsplit(":", 2)
    if len(numbers) != 2 or not numbers[0].isdigit():
        return identifier
    return f"{name}:{int(numbers[0]) + by}:{numbers[1]}"
