"""The life of one run, told to the core alone: what its code decides, and what happens to it from outside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.core.history import parallel_groups
from penstock.core.history.command_effects import CommandEffects
from penstock.core.history.commands import Command
from penstock.core.history.decide import advance
from penstock.core.history.events import EventType
from penstock.core.history.payloads import activity_payload, child_payload, timer_payload
from penstock.core.history.recorder import record
from penstock.core.history.structural_limits import StructuralLimits
from penstock.core.model import Activity, ChildRun, NewEvent, RecordedEvent, Run, RunId, Timer, Update
from penstock.core.waits import Waits
from tests.support.builders import NOW_MS, a_run

ROOMY = StructuralLimits(open_activities_max=1_000, open_timers_max=1_000, events_max=10_000)
IDS = tuple(RunId(f"new{number}") for number in range(1, 20))


class Life:
    """Holds a run and its history; whoever tells it something learns whether its code must look."""

    def __init__(self, **changes: Any) -> None:
        self.run: Run = a_run(**changes)
        self.history: list[RecordedEvent] = []

    def decide(self, *commands: Command, update: Update | None = None, at_ms: int = NOW_MS) -> CommandEffects:
        """A workflow task is completed with these commands."""
        step = advance(self.run, commands, ROOMY, at_ms, ids=IDS, update=update)
        self._record(step.run, step.events)
        return step

    def tell(self, *events: NewEvent) -> bool:
        """Something happens outside the code."""
        return self._record(self.run, events)

    def _record(self, run: Run, events: Sequence[NewEvent]) -> bool:
        recorded = record(run, events, NOW_MS)
        self.run = recorded.run
        self.history += recorded.lines
        return recorded.wakes

    @property
    def waits(self) -> Waits:
        return self.run.waits

    @property
    def types(self) -> list[str]:
        return [line.type for line in self.history]

    def said(self, place: int = -1) -> dict[str, Any]:
        """What an event says; negative counts from the end."""
        return dict(json.loads(self.history[place].payload))


SIGNAL = NewEvent(EventType.SIGNAL_RECEIVED, {"signal_name": "go", "arguments": "", "payload_codec": "avro"})


def completed(activity: Activity) -> NewEvent:
    return NewEvent(EventType.ACTIVITY_COMPLETED, activity_payload(activity) | {"result": "AQ=="})


def failed(activity: Activity) -> NewEvent:
    return NewEvent(EventType.ACTIVITY_FAILED, activity_payload(activity) | {"message": "boom"})


def fired(timer: Timer) -> NewEvent:
    return NewEvent(EventType.TIMER_FIRED, timer_payload(timer))


def ended(child: ChildRun, how: EventType = EventType.CHILD_RUN_COMPLETED) -> NewEvent:
    return NewEvent(how, child_payload(child))


def entry(kind: str, base: int, size: int, index: int, **more: Any) -> dict[str, Any]:
    """One entry of a member's path."""
    return {
        "parallel_group_id": f"{kind}:{base}:{size}",
        "parallel_group_base_sequence": base,
        "parallel_group_size": size,
        "parallel_group_index": index,
    } | more


def within(*path: dict[str, Any]) -> dict[str, Any]:
    """What a member carries: the fields of its own group, and the path from the outermost one."""
    return {**path[-1], parallel_groups.PATH: list(path)}


def chosen(
    base: int, total: int, step: int, *, key: str | int, index: int, kind: str, start: int = 0, size: int = 1
) -> dict[str, Any]:
    """The outermost entry of a step that a selection is made from."""
    return entry(
        "select-calls",
        base,
        total,
        step - base,
        parallel_group_mode="select",
        selection_member_key=key,
        selection_member_index=index,
        selection_member_base_sequence=start or step,
        selection_member_size=size,
        selection_member_kind=kind,
    )
