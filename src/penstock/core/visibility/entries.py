"""Index entries of a run besides its columns: search attributes, plain memo values, and its parent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from penstock.core.model import Run, RunHost
from penstock.core.timestamps import instant
from penstock.core.visibility.sort_keys import PRESENT, boolean_key, instant_key, number_key, text_key

PARENT = ":parent"
"""The entry of a parent's workflow id; not a valid attribute name."""
MEMO = "memo."
NAME_MAX = 128
MEMBERS_MAX = 100
"""Most members of a list that are indexed."""
MEMO_KEYS_MAX = 100

Entry = tuple[str, str]
"""A name and the sort key of one of its values."""

_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff`]+")


def entries(run: Run) -> frozenset[Entry]:
    """All entries of a run. Every name also has an entry `PRESENT`."""
    if run.host is not RunHost.WORKFLOW:
        return frozenset()
    if (run.search_attributes, run.memo, run.lineage.parent_workflow_id) == ("{}", "{}", None):
        return frozenset()
    return frozenset((*_attributes(run), *_memo(run), *_parent(run)))


def _attributes(run: Run) -> Iterator[Entry]:
    for name, value in _object(run.search_attributes).items():
        if is_name(name):
            yield from entries_of(name, value)


def _memo(run: Run) -> Iterator[Entry]:
    """Entries of plain memo values; lists and objects are only indexed as present."""
    named = [(MEMO + name, value) for name, value in _object(run.memo).items() if is_name(name)]
    for name, value in named[:MEMO_KEYS_MAX]:
        if isinstance(value, list | dict):
            yield name, PRESENT
        else:
            yield from entries_of(name, value)


def _parent(run: Run) -> Iterator[Entry]:
    if run.lineage.parent_workflow_id is not None:
        yield from entries_of(PARENT, run.lineage.parent_workflow_id)


def is_name(name: str) -> bool:
    """Whether queries can refer to this name."""
    return len(name) <= NAME_MAX and _NAME.fullmatch(name) is not None


def entries_of(name: str, value: Any) -> Iterator[Entry]:
    """The entries of a named value, or of the members of a list."""
    members = value[:MEMBERS_MAX] if isinstance(value, list) else [value]
    marks = [mark for member in members for mark in _marks(member)]
    if marks:
        yield name, PRESENT
    for mark in marks:
        yield name, mark


def _marks(value: Any) -> Iterator[str]:
    """The sort keys of a plain value; text that looks like a timestamp is also indexed as one."""
    if isinstance(value, bool):
        yield boolean_key(value)
    elif isinstance(value, int | float):
        yield number_key(value)
    elif isinstance(value, str):
        yield text_key(value)
        at_ms = instant(value)
        if at_ms is not None:
            yield instant_key(at_ms)


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text) if text != "{}" else {}
    return found if isinstance(found, dict) else {}
