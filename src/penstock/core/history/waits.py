"""What workflow code waits for, as far as the server must know it: one condition, groups, selections.

The code of a concurrent run waits for whatever is open; of it is known that it does, and who keeps it in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from penstock.core import json_text


class ConditionWait(Struct, frozen=True):
    """The condition that the code waits for. Only the code can tell whether it holds."""

    id: str
    step: int
    key: str | None = None
    fingerprint: str | None = None
    timer_id: str | None = None
    delay_s: int | None = None
    fire_at_ms: int | None = None
    fired: bool = False
    """Whether its timer has fired, though the history does not say so yet."""
    heard: bool = False
    """Whether a signal or an update came since it opened."""

    def is_same(self, key: str | None, fingerprint: str | None) -> bool:
        return (self.key or "", self.fingerprint or "") == (key or "", fingerprint or "")


class SelectionMember(Struct, frozen=True):
    """One of the things of which the code awaits the first: a step, or a group of steps."""

    key: str | int
    index: int
    base: int
    size: int
    kind: str
    identity: str
    left: int
    """How many of its steps have not ended."""
    done: bool = False
    cancelled: bool = False


class Selection(Struct, frozen=True):
    id: str
    base: int
    size: int
    members: Mapping[int, SelectionMember] = field(default_factory=dict)
    """By index."""
    resolved: bool = False

    def member(self, index: int) -> SelectionMember | None:
        return self.members.get(index)

    def with_member(self, member: SelectionMember) -> Selection:
        return replace(self, members={**self.members, member.index: member})

    @property
    def is_over(self) -> bool:
        opened = sum(each.size for each in self.members.values())
        return opened >= self.size and all(each.cancelled or not each.left for each in self.members.values())


class Waits(Struct, frozen=True):
    condition: ConditionWait | None = None
    groups: Mapping[str, int] = field(default_factory=dict)
    """How many members of each open group have not ended."""
    selections: tuple[Selection, ...] = ()
    selected: bool = False
    """Whether there ever was a selection: workers may then guess numbers of steps wrong."""
    signals_deferred: bool = False
    """Whether signals wait until the code has looked: at the beginning, and after the timeout of a condition.

    Workers take a signal that stands there for one that the next condition heard, though it may have been meant,
    and met, by an earlier one that never was recorded.
    """
    old: bool = False
    """Whether the run is from a time when groups were not kept: members are told by their numbers."""
    concurrent: bool = False
    """Whether many steps are open at once and everything that comes wakes the code."""
    cancelling: bool = False
    """Whether the code of a concurrent run was asked to end."""
    delivers_cancel: bool = False
    """Whether a cancel request is delivered to the code also before the first workflow task, as the start asked for.

    Until that task is completed it is not known whether the code is concurrent, and can handle a cancel request.
    """
    unhandled_signals: int = 0
    """How often in a row the code would have ended the run, and was to hear a signal first."""
    external: tuple[int, ...] = ()
    """Steps that asked something of another run, which has not answered."""
    ending: tuple[int, ...] = ()
    """Activities, by step, that were asked to stop and whose end the code waits for."""
    cached: tuple[str, int, int] | None = None
    """The worker that keeps the code in memory, up to which event that has seen, and for how many milliseconds the
    run's next task is reserved for it."""

    def with_ended(self, step: int) -> Waits:
        """The same when an activity that was asked to stop has ended."""
        return replace(self, ending=tuple(each for each in self.ending if each != step))

    def selection(self, identifier: str) -> Selection | None:
        return next((each for each in self.selections if each.id == identifier), None)

    def with_selection(self, selection: Selection) -> Waits:
        others = [each for each in self.selections if each.id != selection.id]
        kept = others if selection.is_over else [*others, selection]
        return replace(self, selections=tuple(sorted(kept, key=lambda each: each.base)), selected=True)


_OF_MEMBER = attrgetter(*SelectionMember.__struct_fields__)
NOTHING = Waits()
NEW_RUN = '{"hushed":true}'
"""Of a run whose code has not looked at anything yet."""
NEW_RUN_DELIVERING_CANCEL = '{"hushed":true,"delivers_cancel":true}'
"""The same, of a run whose code receives a cancel request with its first workflow task."""


_HUSHED = '"hushed":true'
_CONCURRENT = '"concurrent":true'
_TURNED_BACK = '"turned_back":'
_ENDING = '"ending":'


def defers_signals(text: str) -> bool:
    """Whether signals wait; told without reading all of it, for that is asked often."""
    return _HUSHED in text and parse(text).signals_deferred


@lru_cache(maxsize=256)
def parse(text: str) -> Waits:
    """What a text says; read once, since what is asked about a run is asked several times in a row."""
    if text == "{}":
        return NOTHING
    said: dict[str, Any] = json_text.read(text)
    condition = said.get("condition")
    return Waits(
        condition=ConditionWait(**condition) if condition else None,
        groups=said.get("groups", {}),
        selections=tuple(_selection(each) for each in said.get("selections", ())),
        selected=said.get("selected", False),
        signals_deferred=said.get("hushed", False),
        old=said.get("old", False),
        concurrent=said.get("concurrent", False),
        cancelling=said.get("cancelling", False),
        delivers_cancel=said.get("delivers_cancel", False),
        unhandled_signals=said.get("turned_back", 0),
        external=tuple(said.get("external", ())),
        ending=tuple(said.get("ending", ())),
        cached=_cached(said.get("cached")),
    )


def unhandled_signals(text: str) -> int:
    return parse(text).unhandled_signals if _TURNED_BACK in text else 0


def is_concurrent(text: str) -> bool:
    return _CONCURRENT in text and parse(text).concurrent


def delivers_cancel(text: str) -> bool:
    """Whether a cancel request is delivered to the code, which then ends the run by itself."""
    kept = parse(text)
    return kept.concurrent or kept.delivers_cancel


def is_ending(text: str, step: int) -> bool:
    """Whether an activity was asked to stop, and the code waits for its end."""
    return _ENDING in text and step in parse(text).ending


_ENCODED = {
    "selected": "selected",
    "hushed": "signals_deferred",
    "old": "old",
    "concurrent": "concurrent",
    "cancelling": "cancelling",
    "delivers_cancel": "delivers_cancel",
    "turned_back": "unhandled_signals",
}
"""Stored names of plain fields, in the order in which they are written; they are data, and do not change."""


def text(waits: Waits) -> str:
    if waits == NOTHING:
        return "{}"
    said: dict[str, Any] = {}
    if waits.condition is not None:
        told = asdict(waits.condition)
        said["condition"] = {
            name: value for name, value in told.items() if value is not None and value is not False
        }
    if waits.groups:
        said["groups"] = dict(waits.groups)
    if waits.selections:
        said["selections"] = [_listed(each) for each in waits.selections]
    for name, attribute in _ENCODED.items():
        if value := getattr(waits, attribute):
            said[name] = value
    for name in ("external", "ending"):
        if steps := getattr(waits, name):
            said[name] = list(steps)
    if waits.cached is not None:
        said["cached"] = list(waits.cached if waits.cached[2] else waits.cached[:2])
    return json_text.written(said)


def _listed(selection: Selection) -> list[Any]:
    """A selection in few words: it may have a thousand members, and is written with each of their ends."""
    members = [_OF_MEMBER(each) for each in selection.members.values()]
    return [selection.id, selection.base, selection.size, selection.resolved, members]


def _selection(said: list[Any]) -> Selection:
    identifier, base, size, resolved, members = said
    made = [SelectionMember(*each) for each in members]
    return Selection(identifier, base, size, {each.index: each for each in made}, resolved)


def _cached(said: list[Any] | None) -> tuple[str, int, int] | None:
    if said is None:
        return None
    return str(said[0]), int(said[1]), int(said[2]) if len(said) > 2 else 0
