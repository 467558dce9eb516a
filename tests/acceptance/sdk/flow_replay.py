"""Replays every history of a flow with the SDK: whole, and cut after every event."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from durable_workflow import Replayer
from durable_workflow.workflow import (
    CancelDurableOperation,
    CompleteWorkflow,
    ContinueAsNew,
    FailWorkflow,
)

from tests.acceptance.cluster import Json, value

LONG, LONG_STRIDE = 300, 11
"""A replay of n events costs n: of histories that are longer than this, only some cuts are tried."""
CLOSING = (
    "WorkflowCompleted",
    "WorkflowFailed",
    "WorkflowContinuedAsNew",
    "WorkflowCancelled",
    "WorkflowTerminated",
    "WorkflowTimedOut",
)
OPENING = (
    "ActivityScheduled",
    "TimerScheduled",
    "ChildWorkflowScheduled",
    "ConditionWaitOpened",
    "SideEffectRecorded",
    "VersionMarkerRecorded",
    "SearchAttributesUpserted",
    "MemoUpserted",
)
STEP_ENDS = (
    "ActivityCompleted",
    "ActivityFailed",
    "ActivityTimedOut",
    "ActivityCancelled",
    "TimerFired",
    "TimerCancelled",
    "ChildRunCompleted",
    "ChildRunFailed",
    "ChildRunCancelled",
    "ChildRunTerminated",
)


@dataclass(frozen=True)
class Past:
    """One run as its history tells it."""

    workflow_id: str
    run_id: str
    events: Sequence[Json]

    @property
    def types(self) -> list[str]:
        return [event["event_type"] for event in self.events]

    @property
    def closing(self) -> Json | None:
        return next((event for event in self.events if event["event_type"] in CLOSING), None)

    def of(self, *types: str) -> list[Json]:
        """The payloads of the events of these types."""
        return [event["payload"] for event in self.events if event["event_type"] in types]

    def __str__(self) -> str:
        return "\n".join(
            f"{event['sequence']:4} {event['event_type']:26} {json.dumps(event['payload'], default=str)[:600]}"
            for event in self.events
        )


def check(replayer: Replayer, past: Past) -> None:
    """A history is dense, ends once, gives each step one outcome, and replays from every point of it."""
    try:
        _dense(past)
        _one_end(past)
        _one_outcome_per_step(past)
        for length in range(1, len(past.events) + 1, 1 if len(past.events) <= LONG else LONG_STRIDE):
            _replay(replayer, past, length)
        _same_end(replayer, past)
    except Exception as problem:
        raise AssertionError(f"{past.workflow_id} {past.run_id}: {problem!r}\n{past}") from problem


def _dense(past: Past) -> None:
    assert [event["sequence"] for event in past.events] == list(range(1, len(past.events) + 1))
    assert past.types[0] in ("StartAccepted", "WorkflowStarted")
    assert len({event["id"] for event in past.events}) == len(past.events)
    steps = {
        payload["sequence"]
        for payload in past.of(*OPENING)
        if payload.get("timer_kind") != "condition_timeout"
    }
    assert steps == set(range(1, len(steps) + 1)), f"steps {sorted(steps)}"


def _one_end(past: Past) -> None:
    ends = [name for name in past.types if name in CLOSING]
    assert len(ends) <= 1, ends
    if ends:
        after = past.types[past.types.index(ends[0]) + 1 :]
        assert not set(after) & {*OPENING, *STEP_ENDS, "SignalReceived"}, after


def _one_outcome_per_step(past: Past) -> None:
    outcomes = Counter(
        (payload["sequence"], payload.get("timer_id"), payload.get("condition_wait_id"))
        for payload in past.of(*STEP_ENDS)
    )
    twice = [step for step, times in outcomes.items() if times > 1]
    assert not twice, f"more than one outcome: {twice}"
    waits = Counter(
        payload["condition_wait_id"] for payload in past.of("ConditionWaitSatisfied", "ConditionWaitTimedOut")
    )
    assert all(times == 1 for times in waits.values()), waits


def _replay(replayer: Replayer, past: Past, length: int) -> Any:
    """What the code does next after so many events. Its own failures are commands; whatever is raised is not."""
    started = "WorkflowStarted" in past.types[:length]
    kind = past.of("WorkflowStarted")[0]["workflow_type"]
    try:
        return replayer.replay(
            list(past.events[:length]),
            None if started else _input(past),
            workflow_type=kind,
            workflow_id=past.workflow_id,
            run_id=past.run_id,
        )
    except Exception as problem:
        raise AssertionError(f"cut after event {length}: {problem}") from problem


def _input(past: Past) -> list[Any]:
    found = value({"blob": past.of("WorkflowStarted")[0]["arguments"]})
    assert isinstance(found, list)
    return found


def _same_end(replayer: Replayer, past: Past) -> None:
    """The code, given the whole history, ends as the history says it did."""
    closing = past.closing
    commands = _replay(replayer, past, len(past.events)).commands
    said = [command for command in commands if not isinstance(command, CancelDurableOperation)]
    match closing and closing["event_type"]:
        case "WorkflowCompleted":
            assert closing is not None
            assert len(said) == 1, said
            assert isinstance(said[0], CompleteWorkflow), said
            assert said[0].result == _decoded(closing["payload"]["output"])
        case "WorkflowFailed":
            assert closing is not None
            assert len(said) == 1, said
            assert isinstance(said[0], FailWorkflow), said
            assert said[0].message == closing["payload"]["message"]
        case "WorkflowContinuedAsNew":
            assert len(said) == 1, said
            assert isinstance(said[0], ContinueAsNew), said
        case _:
            assert not any(isinstance(command, CompleteWorkflow) for command in said) or closing, said


def _decoded(payload: Any) -> Any:
    return value(payload if isinstance(payload, dict) else {"blob": payload})
