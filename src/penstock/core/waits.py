"""What workflow code waits for, as far as the server must know it: one condition, groups, selections.

The code of a concurrent run waits for whatever is open; of it is known that it does, and who keeps it in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace


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

    @property
    def receives_cancel(self) -> bool:
        """Whether a cancel request is delivered to the code, which then ends the run by itself."""
        return self.concurrent or self.delivers_cancel

    def with_ended(self, step: int) -> Waits:
        """The same when an activity that was asked to stop has ended."""
        return replace(self, ending=tuple(each for each in self.ending if each != step))

    def selection(self, identifier: str) -> Selection | None:
        return next((each for each in self.selections if each.id == identifier), None)

    def with_selection(self, selection: Selection) -> Waits:
        others = [each for each in self.selections if each.id != selection.id]
        kept = others if selection.is_over else [*others, selection]
        return replace(self, selections=tuple(sorted(kept, key=lambda each: each.base)), selected=True)


NO_WAITS = Waits()
NEW_RUN = Waits(signals_deferred=True)
"""Of a run whose code has not run yet."""
NEW_RUN_DELIVERING_CANCEL = Waits(signals_deferred=True, delivers_cancel=True)
"""Of a run whose code receives a cancel request with its first workflow task."""
