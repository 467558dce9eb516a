"""Cooperative cancellation of stepwise runs: a request that code receives at the call it waits for, and may clean up.

Theory of operation
-------------------
A request is an event, `CooperativeCancellationRequested`, with a deadline. It changes nothing for the code yet: the
worker that holds the next workflow task replays, finds the first call that the request may interrupt, and asks the
server to *deliver* the cancellation there. Only the event `CooperativeCancellationDelivered` raises the exception in
the code, in this and in every later replay. It takes the place of the call: what the call had open is cancelled in the
same transaction, and whatever still comes of it is not recorded.

A result that was recorded before the request stands: the code has to see it. So a call may be interrupted only if it
is not yet complete at the event of the request, no member of it had failed, and no member of it was selected
(`earlier_results`). The worker decides by the same rule from the same history; the server checks it, because
a delivery that contradicts the history could never be replayed.

The call is named by its step. It is the run's last one, or the next one if its command was not sent yet: the
interrupted call keeps its number, and the commands of the cleanup come behind it (`interrupted`).

The request is recorded behind the commands of a leased workflow task, like everything from outside
(`engine/runs/history_writer.py`). In front of them it could lie before the result of a call that these commands have
already left, and replay would raise the cancellation there.

Rejected: delivering with the request, as `cancel` does for concurrent code. The server does not know where a generator
stands: conditions are evaluated, and shields entered, in the worker only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.attribution import Caller
from penstock.core.history.commands import (
    Command,
    OpenConditionWait,
    OpenSignalWait,
    ScheduleActivity,
    StartChild,
    StartTimer,
    Step,
    Terminal,
)
from penstock.core.history.events import ENDED, SUCCEEDED, EventType
from penstock.core.model import NewEvent, RecordedEvent, Run
from penstock.core.timestamps import iso
from penstock.core.waits import CancellationDelivery, CancellationRequest, Waits
from penstock.errors import Conflict, Reason

CAPABILITY = "cooperative_cancellation"
"""The capability that a worker registers if it can deliver cancellations."""
CLEANUP_DEFAULT_S = 60
CLEANUP_MAX_S = 3_600
CALLS = frozenset(
    {"activity", "local_activity", "timer", "condition", "signal", "child", "parallel", "selection_handle"}
)
POLICY = "cancellation_policy"
"""The field of a command that says what an interrupted activity or child experiences."""
TRY, WAIT, ABANDON = "try_cancel", "wait_cancellation_completed", "abandon"
_RESOLVED = ENDED | {EventType.SIGNAL_APPLIED, EventType.TIMER_CANCELLED}
_SUCCEEDED = SUCCEEDED | {EventType.SIGNAL_APPLIED, EventType.TIMER_CANCELLED}
_BLOCKING = ScheduleActivity | StartTimer | StartChild | OpenConditionWait | OpenSignalWait | Terminal
_SERVER = Caller("server", "penstock")
_CONTEXT = "durable-workflow.cancellation-context/v1"


def request(
    run: Run, reason: str | None, cleanup_s: int | None, caller: Caller | None, now_ms: int
) -> CancellationRequest:
    """A new request; there is one in the life of a run."""
    return CancellationRequest(
        id=f"{run.run_id}-request-cancellation",
        requested_at_ms=now_ms,
        deadline_at_ms=now_ms + (cleanup_s or CLEANUP_DEFAULT_S) * 1000,
        reason=reason,
        requester=None if caller is None else (caller.type, caller.id),
    )


def requested(run: Run, asked: CancellationRequest) -> NewEvent:
    """The event of a request, with the context that the code may read once it was delivered."""
    requester = _SERVER if asked.requester is None else Caller(*asked.requester)
    deadline = iso(asked.deadline_at_ms)
    context = {
        "schema": _CONTEXT,
        "request_id": asked.id,
        "root_request_id": asked.id,
        "root_workflow_instance_id": run.workflow_id,
        "root_workflow_run_id": run.run_id,
        "parent_request_id": None,
        "reason": asked.reason,
        "requester": {"type": requester.type, "id": requester.id},
        "source": "control_plane",
        "requested_at": iso(asked.requested_at_ms),
        "cleanup_deadline_at": deadline,
        "lineage": [
            {
                "request_id": asked.id,
                "workflow_instance_id": run.workflow_id,
                "workflow_run_id": run.run_id,
            }
        ],
    }
    payload = _identity(run, asked) | {
        "cleanup_deadline_at": deadline,
        "reason": asked.reason,
        "command_type": "request_cancellation",
        "cancellation": context,
    }
    return NewEvent(EventType.COOPERATIVE_CANCELLATION_REQUESTED, payload)


def delivered(run: Run, asked: CancellationRequest, delivery: CancellationDelivery) -> NewEvent:
    """The event at which the code receives the cancellation."""
    return NewEvent(
        EventType.COOPERATIVE_CANCELLATION_DELIVERED, _identity(run, asked) | delivery_fields(delivery)
    )


def delivery_fields(delivery: CancellationDelivery) -> dict[str, Any]:
    """The interrupted call, as event and response name it."""
    return {
        "sequence": delivery.sequence,
        "call_kind": delivery.kind,
        "sequence_span": delivery.span,
        "operation_sequence": delivery.operation,
        "operation_sequence_span": delivery.operation_span,
    }


def _identity(run: Run, asked: CancellationRequest) -> dict[str, Any]:
    return {
        "workflow_command_id": asked.id,
        "workflow_run_id": run.run_id,
        "workflow_instance_id": run.workflow_id,
    }


class OpenWork(Struct, frozen=True):
    """The steps of an interrupted call that are open, by what they are."""

    activities: frozenset[int] = frozenset()
    timers: frozenset[int] = frozenset()
    children: frozenset[int] = frozenset()


class EarlierResults(Struct, frozen=True):
    """What a history says about steps before the event of the request."""

    resolved: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()
    selected: frozenset[tuple[int, int]] = frozenset()
    """Groups whose selection was decided, as first step and size."""


def check_call(run: Run, delivery: CancellationDelivery, work: OpenWork) -> None:
    """Raise `Conflict` unless the code can be waiting for this call, as far as the run tells."""
    steps = delivery.steps
    is_next = delivery.sequence == run.last_step + 1
    is_last = delivery.operation is None and steps[-1] == run.last_step
    if delivery.kind not in CALLS or not (is_next or is_last):
        raise mismatch(delivery, f"The run's last step is {run.last_step}.")
    if delivery.operation is not None and not 1 <= steps[0] <= steps[-1] <= run.last_step:
        raise mismatch(delivery, "The handle stands for steps that the run does not have.")
    kind = None if is_next or delivery.span > 1 else _open_kind(run, delivery.sequence, work)
    if kind is not None and kind != delivery.kind and delivery.kind != "parallel":
        raise mismatch(delivery, f"Step {delivery.sequence} is a {kind}.")


def _open_kind(run: Run, step: int, work: OpenWork) -> str | None:
    condition, signal = run.waits.condition, run.waits.signal
    if condition is not None and condition.step == step:
        return "condition"
    if signal is not None and signal.step == step:
        return "signal"
    kinds = (("activity", work.activities), ("timer", work.timers), ("child", work.children))
    return next((kind for kind, steps in kinds if step in steps), None)


def is_surely_open(run: Run, delivery: CancellationDelivery, work: OpenWork) -> bool:
    """Whether a call needs no look at the history: its command was not sent yet, or its only step is open."""
    if delivery.operation is None and delivery.sequence == run.last_step + 1:
        return True
    return len(delivery.steps) == 1 and _open_kind(run, delivery.steps[0], work) is not None


def earlier_results(
    before: EarlierResults, events: Iterable[RecordedEvent], request_event: int
) -> EarlierResults:
    """Add the results that some more events of a history record before the event of the request."""
    resolved, failed, selected = set(before.resolved), set(before.failed), set(before.selected)
    for event in events:
        if event.sequence >= request_event:
            break
        if event.type == EventType.SELECTION_RESOLVED:
            payload = json_text.read(event.payload)
            base, size = payload["selection_group_base_sequence"], payload["selection_group_size"]
            selected.add((base, size))
        elif event.type == EventType.SELECTION_OPERATION_CANCELLED:
            payload = json_text.read(event.payload)
            base, size = payload.get("member_base_sequence"), payload.get("member_size")
            if isinstance(base, int) and isinstance(size, int):
                resolved.update(range(base, base + min(size, 1_000)))
        elif event.type in _RESOLVED:
            step = json_text.read(event.payload).get("sequence")
            resolved.add(step)
            if event.type not in _SUCCEEDED:
                failed.add(step)
    return EarlierResults(frozenset(resolved), frozenset(failed), frozenset(selected))


def check_unresolved(delivery: CancellationDelivery, before: EarlierResults) -> None:
    """Raise `Conflict` if the call had a result before the request, which the code has to see."""
    steps = delivery.steps
    if (
        before.resolved.issuperset(steps)
        or not before.failed.isdisjoint(steps)
        or (steps[0], len(steps)) in before.selected
    ):
        raise Conflict(
            Reason.CANCELLATION_CALL_RESOLVED,
            "The call had a result before the cancellation was requested. Replay it, and deliver at a later call.",
            **delivery_fields(delivery),
        )


def mismatch(delivery: CancellationDelivery, why: str) -> Conflict:
    return Conflict(
        Reason.CANCELLATION_CALL_MISMATCH,
        f"The run does not wait for this {delivery.kind}. {why}",
        **delivery_fields(delivery),
    )


def interrupted(run: Run, asked: CancellationRequest, delivery: CancellationDelivery) -> Run:
    """The run after a delivery: the call's waits are over, and the next command gets the step behind it."""
    waiting = replace(run.waits, cancellation=replace(asked, delivery=delivery, asked=()))
    waiting = _without_waits(waiting, delivery)
    return replace(run, waits=waiting, last_step=max(run.last_step, delivery.sequence + delivery.span - 1))


def _without_waits(waiting: Waits, delivery: CancellationDelivery) -> Waits:
    steps = delivery.steps
    condition, signal = waiting.condition, waiting.signal
    if condition is not None and condition.step in steps:
        waiting = replace(waiting, condition=None)
    if signal is not None and signal.step in steps:
        waiting = replace(waiting, signal=None)
    for selection in waiting.selections:
        if delivery.operation is None and selection.base in steps:
            left = tuple(each for each in waiting.selections if each.id != selection.id)
            waiting = replace(waiting, selections=left)
            continue
        for member in selection.members.values():
            if member.base in steps and not member.cancelled:
                given_up = selection.with_member(replace(member, cancelled=True))
                waiting = waiting.with_selection(given_up)
                selection = given_up
    if not waiting.groups or delivery.kind != "parallel":
        return waiting
    named = f":{delivery.sequence}:{delivery.span}"
    groups = {group: count for group, count in waiting.groups.items() if not f":{group}".endswith(named)}
    return replace(waiting, groups=groups)


def leaves_code_ready(commands: Sequence[Command], waiting: Waits) -> bool:
    """Whether code stopped before the call at which it wants to receive a request, and must run again for that.

    A worker sends the steps that come before the call, and delivers with its next task. None of them waits. Without
    a new step the code waits for what is open, so that no task follows another for nothing.
    """
    is_new = any(isinstance(each, Step) for each in commands)
    waits = any(isinstance(each, _BLOCKING) for each in commands)
    return waiting.undelivered is not None and is_new and not waits


def is_let_through(waiting: Waits, failure: Mapping[str, Any]) -> bool:
    """Whether a failure is the delivered cancellation, which the code did not catch or raised again."""
    asked = waiting.cancellation
    named = str(failure.get("exception_type") or failure.get("exception_class") or "")
    was_delivered = asked is not None and asked.delivery is not None
    return was_delivered and named.rpartition(".")[2] == "WorkflowCancelled"
