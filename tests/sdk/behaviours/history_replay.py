"""Replays a recorded history with the code that made it: whole, and cut after every event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.sdk.converters import DEFAULT
from penstock.sdk.replay.errors import NonDeterminismError
from penstock.sdk.replay.info import PolledRun
from penstock.sdk.replay.instance import Activation, WorkflowRun
from penstock.sdk.replay.replayer import History, Replayer
from penstock.sdk.workflows.definitions import WorkflowDefinition

Json = Mapping[str, Any]
MARKER, BESIDE = "WorkflowTaskCompleted", "ChildRunStarted"
SHORT = "something else, or the end of the task"
RECORDED_AS = {
    "schedule_activity": "ActivityScheduled",
    "start_timer": "TimerScheduled",
    "start_child_workflow": "ChildWorkflowScheduled",
    "record_version_marker": "VersionMarkerRecorded",
    "upsert_search_attributes": "SearchAttributesUpserted",
    "upsert_memo": "MemoUpserted",
    "signal_external_workflow": "ExternalRequestInitiated",
    "cancel_external_workflow": "ExternalRequestInitiated",
    "cancel_step": "StepCancelRequested",
    "complete_update": "UpdateCompleted",
    "fail_update": "UpdateCompleted",
    "complete_workflow": "WorkflowCompleted",
    "fail_workflow": "WorkflowFailed",
    "cancel_workflow": "WorkflowCancelled",
    "continue_as_new": "WorkflowContinuedAsNew",
    "record_local_activity": "ActivityScheduled",
}
_SAME = (
    "activity_type",
    "delay_ms",
    "change_id",
    "version",
    "signal_name",
    "step_sequence",
    "update_id",
    "message",
)
"""Fields of a command that its event repeats."""
_LOCAL_ENDS = {
    "ActivityCompleted": "completed",
    "ActivityFailed": "failed",
    "ActivityTimedOut": "timed_out",
    "ActivityCancelled": "cancelled",
}


class Retracer:
    """Checks histories of the given workflows."""

    def __init__(self, workflows: Sequence[type]) -> None:
        self._replayer = Replayer(workflows=workflows)
        definitions = [WorkflowDefinition.of(each) for each in workflows]
        self._definitions = {each.name: each for each in definitions}

    def check(self, history: History) -> None:
        """Raise if code and history diverge anywhere."""
        result = self._replayer.replay(history)
        if result.failure is not None:
            raise result.failure
        ends = ends_of_tasks(history.events)
        for count in range(1, len(history.events) + 1):
            self._check_cut(history, count, ends)

    def _check_cut(self, history: History, count: int, ends: Sequence[range]) -> None:
        """Check a history that ends after `count` events: no mismatch, and the commands that were recorded next."""
        events = history.events[:count]
        inside = any(count in each for each in ends)
        run = self._begin(history)
        try:
            if inside:
                _check_is_only_short(run, events)
            elif count < len(history.events) and history.events[count]["event_type"] == MARKER:
                told = _told(history.events, count + 1)
                activation = _with_locals(run, run.activate(events), told)
                compare(activation.commands, told)
            else:
                run.replay(events)
        finally:
            run.close()

    def _begin(self, history: History) -> WorkflowRun:
        definition = self._definitions.get(history.type) or self._definitions[None]
        place = PolledRun(
            history.namespace,
            history.task_queue,
            history.workflow_id,
            history.run_id,
            history.type,
            history.priority,
        )
        return WorkflowRun(definition, place, DEFAULT)


def _check_is_only_short(run: WorkflowRun, events: Sequence[Json]) -> None:
    """A task is recorded atomically. A cut inside it must be reported as missing commands, not as different ones."""
    try:
        run.replay(events)
    except NonDeterminismError as error:
        if error.recorded != SHORT:
            raise


def ends_of_tasks(events: Sequence[Json]) -> list[range]:
    """For each completed task: the cuts between its marker and its last command."""
    found = []
    for index, event in enumerate(events):
        if event["event_type"] == MARKER:
            told = _told(events, index + 1)
            found.append(range(index + 1, told[-1]["sequence"] if told else index + 1))
    return found


def _told(events: Sequence[Json], start: int) -> list[Json]:
    """The events that record the commands of a task: after its marker, up to the next input."""
    found: list[Json] = []
    for event in events[start:]:
        if event["event_type"] == BESIDE:
            continue
        if not _is_told(event):
            break
        found.append(event)
        if event["event_type"] in _LAST:
            break
    return found


_LAST = {"WorkflowCompleted", "WorkflowFailed", "WorkflowCancelled", "WorkflowContinuedAsNew"}


def _is_told(event: Json) -> bool:
    return (
        event["event_type"] in set(RECORDED_AS.values()) or event["payload"].get("execution_mode") == "local"
    )


def _with_locals(run: WorkflowRun, activation: Activation, told: Sequence[Json]) -> Activation:
    """End local activities in their recorded order."""
    waiting = list(activation.local)
    for event in told:
        if not _is_local_end(event):
            continue
        number = event["payload"]["local_number"]
        request = next(each for each in waiting if each.request_id.endswith(f"-l{number}"))
        waiting.remove(request)
        activation = run.resolve_local(request.request_id, _outcome(event))
        waiting += activation.local
    return activation


def _is_local_end(event: Json) -> bool:
    return event["event_type"] in _LOCAL_ENDS and event["payload"].get("execution_mode") == "local"


def _outcome(event: Json) -> dict[str, Any]:
    return {"outcome": _LOCAL_ENDS[event["event_type"]], **event["payload"]}


def compare(commands: Sequence[Json], told: Sequence[Json]) -> None:
    """Check that commands match the events that record them, in type, order and fields."""
    recorded = [event for event in told if not _is_local_start_only(event)]
    kinds = [_kind_of(command) for command in commands]
    assert kinds == [_recorded_kind(event) for event in recorded], (kinds, recorded)
    for command, event in zip(commands, recorded, strict=True):
        _compare_one(command, event["payload"])


def _is_local_start_only(event: Json) -> bool:
    return event["payload"].get("execution_mode") == "local" and not _is_local_end(event)


def _kind_of(command: Json) -> str:
    return "local" if command["type"] == "record_local_activity" else RECORDED_AS[command["type"]]


def _recorded_kind(event: Json) -> str:
    return "local" if _is_local_end(event) else str(event["event_type"])


def _compare_one(command: Json, payload: Json) -> None:
    for name in _SAME:
        if name in command and name in payload:
            assert command[name] == payload[name], (name, command, payload)
    for name, of_event in _VALUES.items():
        if name in command and (blob := of_event(payload)) is not None:
            assert DEFAULT.decode(command[name]) == DEFAULT.decode(blob), (name, command, payload)


_VALUES: dict[str, Callable[[Json], Any]] = {
    "result": lambda payload: payload.get("result") or payload.get("output"),
    "arguments": lambda payload: payload.get("arguments"),
}
