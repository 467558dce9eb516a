"""What workflow code waits for, as far as the server must know it to schedule workflow tasks.

Theory of operation
-------------------
When something happens to a run, the server must decide whether to schedule a workflow task. Scheduling one for nothing
makes a worker replay the history; not scheduling one leaves the run stuck. `Waits` holds exactly what that decision
needs. It is a value of the run: read and locked with its row, changed in the transaction that appends the events
(`history/recorder.py`), so it cannot disagree with the history.

There are two kinds of runs, fixed by the first completed workflow task:

- *Stepwise* code (a generator) reports what it awaits. A single step wakes it when it ends. A *parallel group* is
  counted: the end of its last member wakes it. A *selection* is kept by member: the first member to end is recorded as
  an event right behind the event that decided it, and a member that was cancelled may end without effect. A *condition*
  is known only by name, since only the code can evaluate it: every signal and update wakes it. A wait for *one
  signal* is satisfied by the first signal of its name that no earlier wait has taken.
- *Concurrent* code (async and await) has tasks of its own, and the server cannot know what they await: every result,
  signal, update and cancel request wakes it. Its `Waits` has no conditions, groups or selections.

Until a cancellation request is delivered (`history/cancellation.py`), every end of a step wakes stepwise code.

Signals are deferred (`signals_deferred`) at two moments: from the start until the first workflow task is completed,
and from the timeout of a condition until the code has run again. A replaying worker attributes a signal found at such
a place to the next *recorded* wait. In the original execution the code may have consumed it in an earlier wait, which
was satisfied at once and therefore never recorded; replay would then diverge. Deferred signals are buffered and
appended behind the commands of the next completion.

Rejected: deriving the answer from the history (reading it for every ended activity makes a group of n activities cost
n^2), and counting open rows of a group (whether it is complete must follow the order of the events, not what another
transaction happens to see).

`run_codec.py` defines the stored form.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace


class ConditionWait(Struct, frozen=True):
    """An open condition. Only workflow code can evaluate it."""

    id: str
    step: int
    key: str | None = None
    fingerprint: str | None = None
    timer_id: str | None = None
    delay_s: int | None = None
    fire_at_ms: int | None = None
    fired: bool = False
    """Whether its timer has fired while the event is still buffered."""
    heard: bool = False
    """Whether a signal or an update was recorded since it opened."""

    def is_same(self, key: str | None, fingerprint: str | None) -> bool:
        return (self.key or "", self.fingerprint or "") == (key or "", fingerprint or "")


class SignalWait(Struct, frozen=True):
    """An open wait for one signal by its name."""

    id: str
    step: int
    name: str
    timer_id: str | None = None
    delay_s: int | None = None
    fire_at_ms: int | None = None
    applied: bool = False
    """Whether its signal has come; its timer is cancelled by the next completion."""
    fired: bool = False
    """Whether its timer has fired and is no longer counted, with or without effect."""


class SelectionMember(Struct, frozen=True):
    """One of the alternatives of a selection: a step, or a group of steps."""

    key: str | int
    index: int
    base: int
    size: int
    kind: str
    identity: str
    left: int
    """The number of its steps that have not ended."""
    done: bool = False
    cancelled: bool = False


class Selection(Struct, frozen=True):
    """Steps and groups of which the code awaits the first."""

    id: str
    base: int
    size: int
    members: Mapping[int, SelectionMember] = field(default_factory=dict)
    """By index."""
    resolved: bool = False
    """Whether the first member has ended and was recorded."""
    held: tuple[int, int, str] | None = None
    """The index of the member that ended first, and its event's sequence and type, while a cancellation may still
    interrupt the selection: it is recorded as the result when the code has run without delivering there."""

    def member(self, index: int) -> SelectionMember | None:
        return self.members.get(index)

    def with_member(self, member: SelectionMember) -> Selection:
        return replace(self, members={**self.members, member.index: member})

    @property
    def is_over(self) -> bool:
        opened = sum(each.size for each in self.members.values())
        return (
            self.held is None
            and opened >= self.size
            and all(each.cancelled or not each.left for each in self.members.values())
        )


class CancellationDelivery(Struct, frozen=True):
    """The call of stepwise code at which a cancellation was raised."""

    sequence: int
    kind: str
    span: int = 1
    operation: int | None = None
    """Of a selection's handle: the first step of the operation that it stands for."""
    operation_span: int = 1

    @property
    def steps(self) -> range:
        """The steps that it interrupted."""
        if self.operation is not None:
            return range(self.operation, self.operation + self.operation_span)
        return range(self.sequence, self.sequence + self.span)


class CancellationRequest(Struct, frozen=True):
    """A request to cancel with time to clean up. At its deadline the server closes the run."""

    id: str
    requested_at_ms: int
    deadline_at_ms: int
    reason: str | None = None
    requester: tuple[str, str] | None = None
    """Type and id of the principal; None for the server itself."""
    event: int = 0
    """The sequence of its event; 0 while that is buffered, and in concurrent runs."""
    delivery: CancellationDelivery | None = None
    asked: tuple[int, ...] = ()
    """Steps of children that were asked to cancel and whose end the delivery awaits."""


class Pause(Struct, frozen=True):
    """Why nothing of a run, or no attempt of an activity, is dispatched (`core/pauses.py`)."""

    at_ms: int
    reason: str | None = None
    by: tuple[str, str] | None = None
    """Type and id of the principal that asked for it."""


class Waits(Struct, frozen=True):
    """What wakes the code of a run, what keeps it from being woken, and which worker has it cached."""

    condition: ConditionWait | None = None
    groups: Mapping[str, int] = field(default_factory=dict)
    """The number of members of each open group that have not ended."""
    selections: tuple[Selection, ...] = ()
    selected: bool = False
    """Whether the code has ever opened a selection: workers may then compute step numbers wrongly."""
    signals_deferred: bool = False
    """Whether signals are buffered until the code has run (see the top of this module)."""
    old: bool = False
    """Whether the run predates groups in `Waits`: members are then recognised by their step numbers."""
    concurrent: bool = False
    cancelling: bool = False
    """Whether the code of a concurrent run has received a cancel request."""
    delivers_cancel: bool = False
    """Whether the start asked to deliver a cancel request with the first workflow task.

    Until that task is completed it is not known whether the code is concurrent and can handle the request.
    """
    unhandled_signals: int = 0
    """How often in a row a completion that would have closed the run was rejected because of an unhandled signal."""
    external: tuple[int, ...] = ()
    """Steps with a request to another run that was not answered yet."""
    ending: tuple[int, ...] = ()
    """Steps of activities that were asked to stop and whose end the code awaits."""
    cached: tuple[str, int, int] | None = None
    """The worker that has the code cached, the last event it has seen, and for how many milliseconds the run's next
    workflow task is sticky to it."""
    signal: SignalWait | None = None
    """The open wait for one signal."""
    streams: tuple[str, ...] = ()
    """Of a concurrent run: the message streams that its code reads now."""
    cancellation: CancellationRequest | None = None
    """The request to cancel with time to clean up."""
    to_start: bool = False
    """Whether the run waits to start: caps on runs leave no place for it. Its first workflow task is delayed."""
    places: tuple[int, ...] = ()
    """The scopes of caps on runs in which it holds a place."""
    paused: Pause | None = None
    """Of the run: none of its tasks is dispatched."""
    paused_steps: Mapping[int, Pause] = field(default_factory=dict)
    """Of single activities, by step."""

    @property
    def receives_cancel(self) -> bool:
        """Whether a cancel request is delivered to the code, which then ends the run by itself."""
        return self.concurrent or self.delivers_cancel

    @property
    def undelivered(self) -> CancellationRequest | None:
        """The cancellation request that stepwise code has not received yet."""
        asked = self.cancellation
        return None if asked is None or asked.delivery is not None or self.cancelling else asked

    def interrupts(self, step: object) -> bool:
        """Whether a delivered cancellation has ended the code's wait for a step."""
        asked = self.cancellation
        return asked is not None and asked.delivery is not None and step in asked.delivery.steps

    def with_ended(self, step: int) -> Waits:
        """Without an activity that was asked to stop and has ended."""
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
