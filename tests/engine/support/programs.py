"""Small workflow programs as data, and a worker that runs them: it replays a history and says what comes next.

The worker consumes a history as an SDK does. It knows nothing but the program and the events that it is handed, and
raises `Diverged` where they do not fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.core.history import parallel_groups
from penstock.core.history.commands import (
    CancelSelectionOperation,
    Command,
    CompleteUpdate,
    CompleteWorkflow,
    ContinueAsNew,
    FailUpdate,
    FailWorkflow,
    OpenConditionWait,
    RecordLocalActivity,
    RecordSideEffect,
    RecordVersionMarker,
    ScheduleActivity,
    StartChild,
    StartTimer,
    UpsertMemo,
    UpsertSearchAttributes,
)
from penstock.core.history.events import ENDED, EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT
from penstock.core.model import ActivityTimeouts, Blob, ClosePolicy, RecordedEvent, RetrySchedule

NOTHING = Blob("")
REFUSED = "refuse"
"""The name of updates that fail."""


class Diverged(AssertionError):
    """The history is not one of this program."""


# ── What programs are made of ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Act:
    """Await an activity."""

    retry: RetrySchedule = field(default_factory=RetrySchedule)
    timeouts: ActivityTimeouts = field(default_factory=ActivityTimeouts)


@dataclass(frozen=True, slots=True)
class Sleep:
    delay_s: int


@dataclass(frozen=True, slots=True)
class Kid:
    """Await a child."""

    program: Program
    policy: ClosePolicy = ClosePolicy.ABANDON
    retry: RetrySchedule = field(default_factory=RetrySchedule)
    execution_timeout_s: int | None = None
    run_timeout_s: int | None = None
    named: str | None = None
    """A workflow id, which may be in use."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until this many signals and updates were received in total."""

    need: int
    timeout_s: int | None = None


@dataclass(frozen=True, slots=True)
class Inline:
    """A step that is over at once: effect, marker, attributes, memo, or a local activity and how it ended."""

    kind: str


@dataclass(frozen=True, slots=True)
class Group:
    """Await all."""

    members: tuple[Act | Sleep | Kid | Group, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """Await the first, then leave, cancel or await the others."""

    members: tuple[Act | Sleep | Kid | Wait | Group, ...]
    then: str
    off_by: int = 0
    """By how much the worker's guess of the next group's step numbers is off."""


@dataclass(frozen=True, slots=True)
class End:
    """complete, fail, or fail without retry."""

    how: str = "complete"


@dataclass(frozen=True, slots=True)
class Again:
    """Continue as new, with another program."""

    program: Program


Node = Act | Sleep | Kid | Wait | Inline | Group | Select
Leaf = Act | Sleep | Kid | Wait


@dataclass(frozen=True, slots=True)
class Program:
    nodes: tuple[Node, ...] = ()
    end: End | Again = field(default_factory=End)

    @property
    def name(self) -> str:
        """Its workflow type."""
        name = f"P{hashlib.sha256(repr(self).encode()).hexdigest()[:12]}"
        _LIBRARY[name] = self
        return name


_LIBRARY: dict[str, Program] = {}
"""Every program that was named, by its name."""


# ── Reading a history ───────────────────────────────────────────────────────────────────────────────────

_OPENED = {
    EventType.ACTIVITY_SCHEDULED,
    EventType.TIMER_SCHEDULED,
    EventType.CHILD_WORKFLOW_SCHEDULED,
    EventType.CONDITION_WAIT_OPENED,
    EventType.SIDE_EFFECT_RECORDED,
    EventType.VERSION_MARKER_RECORDED,
    EventType.SEARCH_ATTRIBUTES_UPSERTED,
    EventType.MEMO_UPSERTED,
}


@dataclass(slots=True)
class Step:
    """The events of one step, with their positions."""

    kind: str
    at: int
    payload: dict[str, Any]
    ended: str | None = None
    ended_at: int | None = None

    @property
    def path(self) -> Any:
        return self.payload.get(parallel_groups.PATH)


class History:
    """A history, by steps."""

    def __init__(self, events: Sequence[RecordedEvent]) -> None:
        self.steps: dict[int, Step] = {}
        self.heard_at: list[int] = []
        self.winners: dict[int, dict[str, Any]] = {}
        """Of each selection, by its first step."""
        self.cancelled_members: set[tuple[str, int]] = set()
        self.updates: dict[str, str] = {}
        """Names of the updates that were accepted."""
        for event in events:
            self._read(event.sequence, event.type, json.loads(event.payload))

    def _read(self, at: int, kind: str, payload: dict[str, Any]) -> None:
        step: Any = payload.get("sequence")
        if kind in (EventType.SIGNAL_RECEIVED, EventType.UPDATE_APPLIED):
            self.heard_at.append(at)
        elif kind == EventType.UPDATE_ACCEPTED:
            self.updates[payload["update_id"]] = payload["update_name"]
        elif kind == EventType.SELECTION_RESOLVED:
            self.winners[payload["selection_group_base_sequence"]] = payload
        elif kind == EventType.SELECTION_OPERATION_CANCELLED:
            self.cancelled_members.add((payload["selection_group_id"], payload["member_index"]))
        elif kind in _OPENED and payload.get("timer_kind") != CONDITION_TIMEOUT:
            assert step == len(self.steps) + 1, f"step {step} after {len(self.steps)}"
            self.steps[step] = Step(kind, at, payload)
        elif kind in ENDED:
            self._end(self.steps[step], at, kind, payload)

    def _end(self, step: Step, at: int, kind: str, payload: dict[str, Any]) -> None:
        """A selected condition ends with the event behind its timer's."""
        if payload.get("timer_kind") == CONDITION_TIMEOUT and kind == EventType.TIMER_FIRED and step.path:
            return
        assert step.ended is None, f"step {payload['sequence']} ended twice"
        step.ended, step.ended_at = kind, at
        if step.path is not None:
            assert payload.get(parallel_groups.PATH) == step.path, "the end of a step repeats its path"

    def received(self, before: int | None = None) -> int:
        return sum(before is None or at < before for at in self.heard_at)


# ── Running ─────────────────────────────────────────────────────────────────────────────────────────────


class _Blocked(Exception):
    """The code awaits something that is not in the history yet."""


class _Replay:
    def __init__(self, program: Program, history: History) -> None:
        self._program = program
        self._history = history
        self._next = 1
        self._off_by = 0
        self.pending: list[Command] = []

    def go(self) -> list[Command]:
        try:
            for place, node in enumerate(self._program.nodes):
                self._run(place, node)
        except _Blocked:
            return self.pending
        if self._next <= len(self._history.steps):
            raise Diverged(f"the code ends before step {self._next}")
        return [*self.pending, self._last()]

    def _last(self) -> Command:
        end = self._program.end
        if isinstance(end, Again):
            return ContinueAsNew(NOTHING, end.program.name)
        if end.how == "complete":
            return CompleteWorkflow(Blob("AQ=="))
        return FailWorkflow(
            "as programmed", {"exception_type": "Programmed", "non_retryable": end.how != "fail"}
        )

    def _run(self, place: int, node: Node) -> None:
        match node:
            case Inline():
                self._inline(node)
            case Wait():
                self._wait(f"wait-{place}", node)
            case Group():
                self._group(node)
            case Select():
                self._select(node)
            case _:
                self._await(node)

    def _step(self) -> Step | None:
        """The next step, if the history has it."""
        return self._history.steps.get(self._next)

    def _check(self, step: Step, command: Command) -> None:
        if step.kind != _KINDS[type(command)]:
            raise Diverged(f"step {self._next} is {step.kind}, the code did {command}")

    def _inline(self, node: Inline) -> None:
        command, step = _inline(node), self._step()
        if step is None:
            self.pending.append(command)
        else:
            self._check(step, command)
        self._next += 1

    def _await(self, node: Leaf) -> None:
        command, step = _command(node, {}), self._step()
        if step is None:
            self.pending.append(command)
            raise _Blocked
        self._check(step, command)
        if step.ended is None:
            raise _Blocked
        self._next += 1

    def _wait(self, key: str, node: Wait) -> None:
        command = OpenConditionWait(key, f"need {node.need}", node.timeout_s)
        while True:
            step = self._step()
            if self._history.received(None if step is None else step.at) >= node.need:
                return
            if step is None:
                self.pending.append(command)
                raise _Blocked
            self._check(step, command)
            if step.payload["condition_key"] != key:
                raise Diverged(
                    f"step {self._next} waits for {step.payload['condition_key']}, the code for {key}"
                )
            self._next += 1
            if step.ended == EventType.TIMER_FIRED:
                return
            if self._history.received(step.ended_at) >= node.need:
                return
            if step.ended is None:
                self._next -= 1
                self.pending.append(command)
                raise _Blocked

    def _group(self, node: Group) -> None:
        leaves = list(_leaves(node))
        recorded = self._recorded(len(leaves))
        base = self._next if recorded else self._next + self._off_by
        commands = [_command(leaf, _within(path)) for leaf, path in _annotated(node, base)]
        for step, command in zip(recorded, commands, strict=False):
            self._check(step, command)
            if step.path != command.extra[parallel_groups.PATH]:
                raise Diverged(f"step {step.payload['sequence']} has another path than the code")
        if not recorded or any(step.ended is None for step in recorded):
            self.pending += commands
            raise _Blocked
        self._next += len(leaves)

    def _recorded(self, size: int) -> list[Step]:
        found = [
            self._history.steps[self._next + place]
            for place in range(size)
            if self._next + place in self._history.steps
        ]
        if found and len(found) != size:
            raise Diverged(f"a group at step {self._next} was opened in part")
        return found

    def _select(self, node: Select) -> None:
        members = list(_members(node, self._next))
        leaves = [leaf for member in members for leaf in member.leaves]
        recorded = self._recorded(len(leaves))
        for step, (leaf, path) in zip(recorded, leaves, strict=False):
            self._check(step, _command(leaf, _within(path)))
            if step.path != path:
                raise Diverged(f"step {step.payload['sequence']} has another path than the code")
        if not recorded:
            self.pending += [_command(leaf, _within(path)) for leaf, path in leaves]
            raise _Blocked
        winner = self._history.winners.get(self._next)
        if winner is None:
            raise _Blocked
        self._next += len(leaves)
        self._off_by = node.off_by
        for member in members:
            if member.index != winner["member_index"]:
                self._treat(member, node.then)

    def _treat(self, member: _Member, then: str) -> None:
        """What becomes of one that did not win."""
        cancelled_members = (member.group_id, member.index) in self._history.cancelled_members
        if then == "cancel" and not cancelled_members:
            self.pending.append(member.cancel())
        elif then == "await" and not cancelled_members:
            steps = [self._history.steps[member.base + place] for place in range(len(member.leaves))]
            failed = any(
                step.ended is not None and step.ended.endswith(("Failed", "TimedOut")) for step in steps
            )
            if not failed and any(step.ended is None for step in steps):
                raise _Blocked


def next_commands(events: Sequence[RecordedEvent], update_id: str | None = None) -> list[Command]:
    """A worker's commands for a workflow task; None: it waits for more history."""
    history = History(events)
    program = _LIBRARY[json.loads(events[0].payload)["workflow_type"]]
    commands = _Replay(program, history).go()
    if update_id is None:
        return commands
    name = history.updates[update_id]
    return [FailUpdate(update_id, "no") if name == REFUSED else CompleteUpdate(update_id, Blob("AQ=="))]


# ── Commands ────────────────────────────────────────────────────────────────────────────────────────────

_KINDS: dict[type, EventType] = {
    ScheduleActivity: EventType.ACTIVITY_SCHEDULED,
    RecordLocalActivity: EventType.ACTIVITY_SCHEDULED,
    StartTimer: EventType.TIMER_SCHEDULED,
    StartChild: EventType.CHILD_WORKFLOW_SCHEDULED,
    OpenConditionWait: EventType.CONDITION_WAIT_OPENED,
    RecordSideEffect: EventType.SIDE_EFFECT_RECORDED,
    RecordVersionMarker: EventType.VERSION_MARKER_RECORDED,
    UpsertSearchAttributes: EventType.SEARCH_ATTRIBUTES_UPSERTED,
    UpsertMemo: EventType.MEMO_UPSERTED,
}


def _inline(node: Inline) -> Command:
    match node.kind:
        case "effect":
            return RecordSideEffect(Blob("AQ=="))
        case "marker":
            return RecordVersionMarker("change", 1, 0, 2)
        case "attributes":
            return UpsertSearchAttributes({})
        case "memo":
            return UpsertMemo({"note": "hi"}, NOTHING)
        case _:
            return RecordLocalActivity("Local", node.kind, NOTHING, Blob("AQ=="))


def _command(leaf: Leaf, extra: dict[str, Any]) -> Any:
    match leaf:
        case Act():
            return ScheduleActivity("Act", None, NOTHING, leaf.retry, leaf.timeouts, extra)
        case Sleep():
            return StartTimer(leaf.delay_s, extra)
        case Wait():
            return OpenConditionWait("selected", None, leaf.timeout_s, extra)
        case Kid():
            return StartChild(
                leaf.program.name,
                None,
                NOTHING,
                leaf.named,
                leaf.policy,
                leaf.retry,
                leaf.execution_timeout_s,
                leaf.run_timeout_s,
                extra,
            )


Path = list[dict[str, Any]]


def _within(path: Path) -> dict[str, Any]:
    return {**path[-1], parallel_groups.PATH: path}


def _leaves(node: Any) -> Iterator[Leaf]:
    if isinstance(node, Group):
        for member in node.members:
            yield from _leaves(member)
    else:
        yield node


def _annotated(node: Group, base: int) -> list[tuple[Leaf, Path]]:
    size = sum(1 for _ in _leaves(node))
    found: list[tuple[Leaf, Path]] = []
    for member in node.members:
        if isinstance(member, Group):
            found += [(leaf, list(path)) for leaf, path in _annotated(member, base + len(found))]
        else:
            found.append((member, []))
    return [
        (leaf, [_entry("parallel-calls", base, size, place), *path])
        for place, (leaf, path) in enumerate(found)
    ]


def _entry(kind: str, base: int, size: int, index: int) -> dict[str, Any]:
    return {
        "parallel_group_id": f"{kind}:{base}:{size}",
        "parallel_group_base_sequence": base,
        "parallel_group_size": size,
        "parallel_group_index": index,
    }


@dataclass(frozen=True, slots=True)
class _Member:
    group_id: str
    index: int
    base: int
    leaves: list[tuple[Leaf, Path]]

    def cancel(self) -> CancelSelectionOperation:
        echoed = {
            "selection_group_id": self.group_id,
            "member_key": f"m{self.index}",
            "member_index": self.index,
            "member_base_sequence": self.base,
            "member_size": len(self.leaves),
        }
        return CancelSelectionOperation(self.group_id, self.index, echoed)


_MEMBER_KINDS: dict[type, str] = {
    Act: "activity",
    Sleep: "timer",
    Kid: "child",
    Wait: "condition",
    Group: "group",
}


def _members(node: Select, base: int) -> Iterator[_Member]:
    total = sum(1 for member in node.members for _ in _leaves(member))
    at = base
    for index, member in enumerate(node.members):
        inner: list[tuple[Leaf, Path]] = (
            _annotated(member, at) if isinstance(member, Group) else [(member, [])]
        )
        payload = {
            "parallel_group_mode": "select",
            "selection_member_key": f"m{index}",
            "selection_member_index": index,
            "selection_member_base_sequence": at,
            "selection_member_size": len(inner),
            "selection_member_kind": _MEMBER_KINDS[type(member)],
        }
        leaves: list[tuple[Leaf, Path]] = [
            (leaf, [_entry("select-calls", base, total, at - base + place) | payload, *path])
            for place, (leaf, path) in enumerate(inner)
        ]
        yield _Member(f"select-calls:{base}:{total}", index, at, leaves)
        at += len(leaves)
