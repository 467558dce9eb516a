"""The effects of each command. A `CommandContext` collects those of one workflow task; nothing is stored here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text, payload_codec, waits
from penstock.core.history import activity_timeouts, cancellation, lineage, parallel_groups
from penstock.core.history.commands import (
    CancelExternal,
    CancelSelectionOperation,
    CancelStep,
    CancelWorkflow,
    Command,
    CompleteUpdate,
    CompleteWorkflow,
    ContinueAsNew,
    FailUpdate,
    FailWorkflow,
    OpenConditionWait,
    OpenSignalWait,
    RecordLocalActivity,
    RecordSideEffect,
    RecordVersionMarker,
    ScheduleActivity,
    SignalExternal,
    StartChild,
    StartTimer,
    Step,
    UpsertMemo,
    UpsertSearchAttributes,
)
from penstock.core.history.events import CODEC, EventType
from penstock.core.history.lineage import Successor
from penstock.core.history.payloads import (
    CONDITION_TIMEOUT,
    FAIRNESS_WEIGHT,
    NOTHING_ELSE,
    SIGNAL_TIMEOUT,
    activity_payload,
    child_payload,
    pauses,
    signal_applied,
    signal_timer_payload,
    signal_wait_payload,
    timer_payload,
    update_payload,
    wait_payload,
    wait_timer_payload,
)
from penstock.core.history.recorder import release_held, with_opened
from penstock.core.history.routing_keys import with_key, without_keys
from penstock.core.history.structural_limits import MEMO_BYTES_MAX, SEARCH_ATTRIBUTE_BYTES_MAX, check_size
from penstock.core.id_policies import IdReusePolicy
from penstock.core.model import (
    Activity,
    ActivityId,
    Blob,
    ChildRun,
    Json,
    Lineage,
    NewEvent,
    Run,
    RunHost,
    RunId,
    RunStatus,
    TaskPriority,
    Timer,
    TimerId,
    Update,
    UpdateStatus,
    task_id,
)
from penstock.core.scheduling.retries import GOOD_UNTIL, waiting_deadline_at_ms
from penstock.core.timestamps import earliest, iso
from penstock.core.waits import ConditionWait, Selection, SelectionMember, SignalWait
from penstock.errors import Conflict, Reason


class NewChild(Struct, frozen=True):
    child: ChildRun
    run: Run
    at_ms: int | None = None
    """When its first workflow task may run; None: at once."""
    reuse: IdReusePolicy = IdReusePolicy.REJECT_DUPLICATE
    """Whether it may reuse the id of a closed workflow."""
    problem: str | None = None
    """Why it cannot be started."""
    refusal: str | None = None
    """Why a cap on runs refuses it."""


class ExternalRequest(Struct, frozen=True):
    """A request to another run: a signal or a cancel request."""

    step: int
    workflow_id: str
    run_id: str | None
    kind: str
    """signal or cancel"""
    signal_name: str | None = None
    arguments: Blob | None = None
    reason: str | None = None
    children_only: bool = False


class CommandEffects(Struct, frozen=True):
    """The effects of a workflow task: the changed run, and the rows to create or change."""

    run: Run
    events: tuple[NewEvent, ...] = ()
    activities: tuple[Activity, ...] = ()
    priorities: tuple[TaskPriority, ...] = ()
    """The priority of each activity, in the same order."""
    timers: tuple[Timer, ...] = ()
    ended_timers: tuple[str, ...] = ()
    """Timers of conditions that were met."""
    children: tuple[NewChild, ...] = ()
    cancelled: tuple[range, ...] = ()
    """Cancelled steps: what runs there ends."""
    asked_to_end: tuple[int, ...] = ()
    """Steps of activities that are asked to stop; their end is recorded."""
    never_begun: tuple[Activity, ...] = ()
    """Activities that were scheduled and cancelled by the same workflow task: they close as cancelled."""
    updates: tuple[Update, ...] = ()
    """The updates that were applied, with their outcomes."""
    requests: tuple[ExternalRequest, ...] = ()
    """Requests to other runs."""
    streams: tuple[Json, ...] = ()
    """Operations on the run's streams."""
    attributes_changed: bool = False
    successor: Successor | None = None
    wakes: bool = False
    """Whether another workflow task is needed."""


@dataclass(slots=True)
class CommandContext:
    """Collects the effects of the commands of one workflow task."""

    run: Run
    now_ms: int
    ids: tuple[RunId, ...] = ()
    update: Update | None = None
    concurrent: bool = False
    accepted: Mapping[str, Update] = field(default_factory=dict)
    """Of a concurrent run: the updates that its commands refer to, by id."""
    unapplied_signals: Mapping[str, list[Json]] = field(default_factory=dict)
    """Payloads of received signals that no wait has taken, by name; given if the commands open such a wait."""
    waits: waits.Waits = field(init=False)
    events: list[NewEvent] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    priorities: list[TaskPriority] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    ended_timers: list[str] = field(default_factory=list)
    children: list[NewChild] = field(default_factory=list)
    cancelled: list[range] = field(default_factory=list)
    asked_to_end: list[int] = field(default_factory=list)
    never_begun: list[Activity] = field(default_factory=list)
    streams: list[Json] = field(default_factory=list)
    requests: list[ExternalRequest] = field(default_factory=list)
    applied: dict[str, Update] = field(default_factory=dict)
    attributes_changed: bool = False
    successor: Successor | None = None
    wakes: bool = False
    _used_ids: int = 0

    def __post_init__(self) -> None:
        self.waits = self.run.waits
        if self.waits.delivers_cancel:  # the first completion shows whether the code is concurrent
            self.waits = replace(self.waits, delivers_cancel=False)
        if self.waits.old and not (self.run.open_activities or self.run.open_timers):
            self.waits = replace(self.waits, old=False)
        self.run = replace(self.run, task_failures=0, task_error=None, blocked=None)
        if self.update is None:
            self.waits = replace(self.waits, signals_deferred=False)
            self.run = replace(self.run, unseen_signals=0)
        if self.concurrent:
            self.waits = replace(self.waits, concurrent=True, cached=None)
            self.add_event(EventType.WORKFLOW_TASK_COMPLETED, {"seen_through": self.run.last_sequence})

    def apply(self, command: Command) -> None:
        if isinstance(command, Step):
            self.run = replace(self.run, last_step=self.run.last_step + 1)
        _APPLY[type(command)](self, command)

    def add_event(self, event_type: EventType, payload: dict[str, Any]) -> None:
        self.events.append(NewEvent(event_type, payload))

    def new_id(self) -> RunId:
        self._used_ids += 1
        return self.ids[self._used_ids - 1]

    def release_held(self) -> None:
        """Record what was held back for the delivery of a cancellation, and let the code see it."""
        self.waits, events = release_held(self.run, self.waits)
        self.events += events
        self.wakes |= bool(events)

    def done(self) -> CommandEffects:
        run = replace(self.run, waits=self.waits)
        if run.is_open:
            run = replace(run, status=RunStatus.WAITING)
        return CommandEffects(
            run=run,
            events=tuple(self.events),
            activities=tuple(self.activities),
            priorities=tuple(self.priorities),
            timers=tuple(self.timers),
            ended_timers=tuple(self.ended_timers),
            children=tuple(self.children),
            cancelled=tuple(self.cancelled),
            asked_to_end=tuple(self.asked_to_end),
            never_begun=tuple(self.never_begun),
            updates=tuple(self.applied.values()),
            requests=tuple(self.requests),
            streams=tuple(self.streams),
            attributes_changed=self.attributes_changed,
            successor=self.successor,
            wakes=self.wakes,
        )


def is_step(command: Command) -> bool:
    return isinstance(command, Step)


def satisfy(context: CommandContext) -> None:
    """Close the open condition wait: the code went past it, or opened a new one; likewise a signal wait."""
    _leave_signal_wait(context)
    condition = context.waits.condition
    if condition is None:
        return
    context.add_event(
        EventType.CONDITION_WAIT_SATISFIED, wait_payload(condition) | {"timer_id": condition.timer_id}
    )
    if condition.timer_id is not None:
        context.add_event(
            EventType.TIMER_CANCELLED, wait_timer_payload(condition) | {"cancelled_at": iso(context.now_ms)}
        )
        if not condition.fired:
            context.ended_timers.append(condition.timer_id)
            context.run = replace(context.run, open_timers=context.run.open_timers - 1)
    context.waits = replace(context.waits, condition=None)


def _leave_signal_wait(context: CommandContext) -> None:
    """End the wait for one signal that the code has left, and cancel its timer.

    Code leaves a wait whose signal has come, or, with a fault of its own, one that is open.
    """
    wait = context.waits.signal
    if wait is None:
        return
    if wait.timer_id is not None:
        payload = signal_timer_payload(wait) | {"cancelled_at": iso(context.now_ms)}
        context.add_event(EventType.TIMER_CANCELLED, payload)
        context.ended_timers.append(wait.timer_id)
        if not wait.fired:
            context.run = replace(context.run, open_timers=context.run.open_timers - 1)
    context.waits = replace(context.waits, signal=None)


def _schedule_activity(context: CommandContext, command: ScheduleActivity) -> None:
    context.run = replace(
        context.run, last_task=context.run.last_task + 1, open_activities=context.run.open_activities + 1
    )
    due_ms = context.now_ms + command.delay_ms
    activity = schedule(context.run, expiring(command, due_ms), due_ms)
    context.activities.append(activity)
    context.priorities.append(command.priority.over(context.run.priority))
    context.waits = with_opened(context.waits, dict(command.extra), activity.activity_id)
    payload = activity_payload(activity) | {"task_queue": activity.task_queue}
    context.add_event(EventType.ACTIVITY_SCHEDULED, payload | dispatched(activity, command))
    if command.routing_key is not None:
        _found_by(context, command.routing_key)


def _found_by(context: CommandContext, key: str) -> None:
    """Add a routing key to the run's search attributes."""
    kept = with_key(context.run.search_attributes, key)
    if kept != context.run.search_attributes:
        context.run = replace(context.run, search_attributes=kept)
        context.attributes_changed = True


def dispatched(activity: Activity, command: ScheduleActivity) -> dict[str, Any]:
    """Fields of the scheduled event only: routing key, dispatch configuration, and shortened timeouts."""
    payload: dict[str, Any] = {}
    if command.routing_key is not None:
        payload["routing_key"] = command.routing_key
    if command.dispatch is not None:
        payload["dispatch"] = command.dispatch
    if command.timeouts != activity.timeouts:
        payload |= activity_timeouts.timeout_fields(command.timeouts, activity.timeouts)
    return payload


def expiring(command: ScheduleActivity, due_ms: int) -> ScheduleActivity:
    """The command with `good_until` applied to its schedule-to-start timeout."""
    after_start = None if command.good_for_ms is None else due_ms + command.good_for_ms
    good_until_ms = earliest(command.good_until_ms, after_start)
    if good_until_ms is None:
        return command
    limits = command.timeouts
    start_by = earliest(limits.schedule_to_start_ms, max(0, good_until_ms - due_ms))
    return replace(
        command,
        timeouts=replace(limits, schedule_to_start_ms=start_by),
        extra={**command.extra, GOOD_UNTIL: good_until_ms},
    )


def schedule(run: Run, command: ScheduleActivity, now_ms: int) -> Activity:
    """The activity of the run's latest step, with its latest task number."""
    activity = Activity(
        activity_id=ActivityId(f"{run.run_id}-a{run.last_step}"),
        run_id=run.run_id,
        task_id=task_id(run.run_id, run.last_task),
        step=run.last_step,
        activity_type=command.activity_type,
        task_queue=command.task_queue or run.task_queue,
        arguments=command.arguments,
        retry=command.retry,
        timeouts=activity_timeouts.effective_timeouts(command.timeouts, activity_timeouts.run_budget_ms(run)),
        extra=_extra(run, command),
        scheduled_at_ms=now_ms,
    )
    deadline_at_ms = waiting_deadline_at_ms(activity, now_ms)
    return activity if deadline_at_ms is None else replace(activity, deadline_at_ms=deadline_at_ms)


def _extra(run: Run, command: ScheduleActivity) -> str:
    """JSON text of the command's extra fields, with its weight where that differs from the run's."""
    weight_milli = command.priority.weight_milli
    if weight_milli is not None and weight_milli != run.weight_milli:
        return json_text.written(dict(command.extra) | {FAIRNESS_WEIGHT: weight_milli / 1000})
    return json_text.written(dict(command.extra)) if command.extra else NOTHING_ELSE


_LOCAL_ENDS = {
    "completed": EventType.ACTIVITY_COMPLETED,
    "failed": EventType.ACTIVITY_FAILED,
    "timed_out": EventType.ACTIVITY_TIMED_OUT,
    "cancelled": EventType.ACTIVITY_CANCELLED,
}
_CATEGORIES = {"failed": "activity", "timed_out": "timeout", "cancelled": "cancelled"}


def _record_local_activity(context: CommandContext, command: RecordLocalActivity) -> None:
    run = context.run
    identity = f"{run.run_id}-a{run.last_step}"
    payload: dict[str, Any] = {
        "activity_execution_id": identity,
        "activity_type": command.activity_type,
        "sequence": run.last_step,
        "execution_mode": "local",
        "local_activity": True,
    } | dict(command.extra)
    context.add_event(
        EventType.ACTIVITY_SCHEDULED, payload | {"arguments": command.arguments, "payload_codec": CODEC}
    )
    ended = payload | dict(command.reported_fields)
    if command.outcome == "completed":
        ended |= {"result": command.result, "payload_codec": CODEC}
    else:
        ended |= {
            "failure_category": _CATEGORIES[command.outcome],
            "failure_id": f"{identity}-f1",
            "exception": command.reported_fields.get("exception")
            or {
                "type": command.reported_fields.get("exception_type"),
                "class": command.reported_fields.get("exception_type"),
                "message": command.reported_fields.get("message"),
                "non_retryable": command.reported_fields.get("non_retryable", False),
            },
        }
    context.add_event(_LOCAL_ENDS[command.outcome], ended)


def _start_timer(context: CommandContext, command: StartTimer) -> None:
    extra = dict(command.extra)
    if command.delay_ms is not None:
        extra["delay_ms"] = command.delay_ms
    timer = _timer(context, command.delay_s, command.lasts_ms, extra)
    context.waits = with_opened(context.waits, dict(command.extra), timer.timer_id)
    context.add_event(EventType.TIMER_SCHEDULED, timer_payload(timer))


def _timer(context: CommandContext, delay_s: int, lasts_ms: int, extra: dict[str, Any]) -> Timer:
    run = context.run = replace(context.run, open_timers=context.run.open_timers + 1)
    timer = Timer(
        timer_id=TimerId(f"{run.run_id}-t{run.last_step}"),
        run_id=run.run_id,
        step=run.last_step,
        delay_s=delay_s,
        fire_at_ms=context.now_ms + lasts_ms,
        extra=json_text.written(extra),
    )
    context.timers.append(timer)
    return timer


def _start_child(context: CommandContext, command: StartChild) -> None:
    run = context.run = replace(context.run, open_children=context.run.open_children + 1)
    child_run_id = context.new_id()
    child = ChildRun(
        parent_run_id=run.run_id,
        step=run.last_step,
        namespace=run.namespace,
        workflow_id=command.workflow_id or f"{run.run_id}:{run.last_step}",
        run_id=child_run_id,
        workflow_type=command.workflow_type,
        policy=command.policy,
        extra=json_text.written(command.extra),
    )
    at_ms = context.now_ms + command.delay_ms if command.delay_ms else None
    child_run = _child_run(run, command, child, context.now_ms, delivers_cancel=context.concurrent)
    context.children.append(NewChild(child, child_run, at_ms, command.reuse, command.problem))
    context.waits = with_opened(context.waits, dict(command.extra), child_run_id)
    payload = child_payload(child) | {
        "child_run_number": 1,
        "retry_policy": _retry(command),
        "timeout_policy": {
            "execution_timeout_seconds": command.execution_timeout_s,
            "run_timeout_seconds": command.run_timeout_s,
        },
    }
    context.add_event(EventType.CHILD_WORKFLOW_SCHEDULED, payload)
    context.add_event(
        EventType.CHILD_RUN_STARTED, child_payload(child) | {"child_status": "pending", "retry_attempt": 1}
    )


def _retry(command: StartChild) -> dict[str, Any] | None:
    if not command.retry.given:
        return None
    return {
        "max_attempts": command.retry.max_attempts,
        "backoff_seconds": list(command.retry.backoff_s),
        "non_retryable_error_types": list(command.retry.non_retryable_error_types),
    } | pauses(command.retry)


def _child_run(
    parent: Run, command: StartChild, child: ChildRun, now_ms: int, *, delivers_cancel: bool
) -> Run:
    priority = command.priority.over(parent.priority)
    queue = command.task_queue or parent.task_queue
    execution = _after(now_ms + command.delay_ms, command.execution_timeout_s)
    deadline = _after(now_ms + command.delay_ms, command.run_timeout_s)
    inherited_build = parent.compatibility if queue == parent.task_queue else None
    memo, attributes = json_text.written(command.memo), json_text.written(command.search_attributes)
    check_size("memo_size", memo, MEMO_BYTES_MAX)
    check_size("search_attribute_size", attributes, SEARCH_ATTRIBUTE_BYTES_MAX)
    origin = Lineage(
        parent_run_id=parent.run_id,
        parent_workflow_id=parent.workflow_id,
        parent_step=child.step,
        parent_close_policy=child.policy,
        retry=command.retry,
    )
    return Run(
        run_id=child.run_id,
        namespace=parent.namespace,
        workflow_id=child.workflow_id,
        run_number=1,
        host=RunHost.WORKFLOW,
        workflow_type=command.workflow_type,
        task_queue=queue,
        business_key=command.business_key,
        level=priority.level,
        key=priority.key,
        weight_milli=priority.weight_milli,
        compatibility=command.build_id or inherited_build,
        input=command.arguments,
        memo=memo,
        search_attributes=attributes,
        execution_timeout_s=command.execution_timeout_s,
        run_timeout_s=command.run_timeout_s,
        execution_deadline_at_ms=execution,
        run_deadline_at_ms=deadline,
        started_at_ms=now_ms,
        last_progress_at_ms=now_ms,
        deadline_at_ms=earliest(execution, deadline),
        lineage=origin,
        waits=waits.NEW_RUN_DELIVERING_CANCEL if delivers_cancel else waits.NEW_RUN,
    )


def _after(now_ms: int, timeout_s: int | None) -> int | None:
    return None if timeout_s is None else now_ms + timeout_s * 1000


def _record_side_effect(context: CommandContext, command: RecordSideEffect) -> None:
    payload: dict[str, Any] = {
        "sequence": context.run.last_step,
        "result": command.result,
        "payload_codec": CODEC,
    }
    if command.stream is not None:
        context.streams.append(command.stream)
        named = ("operation", "stream_name", "command_identity", "command_ordinal")
        payload["workflow_stream"] = {name: command.stream.get(name) for name in named}
    context.add_event(EventType.SIDE_EFFECT_RECORDED, payload)


def _record_version_marker(context: CommandContext, command: RecordVersionMarker) -> None:
    context.add_event(
        EventType.VERSION_MARKER_RECORDED,
        {
            "sequence": context.run.last_step,
            "change_id": command.change_id,
            "version": command.version,
            "min_supported": command.min_supported,
            "max_supported": command.max_supported,
        },
    )


def _upsert_search_attributes(context: CommandContext, command: UpsertSearchAttributes) -> None:
    merged = _merged(context.run.search_attributes, command.attributes)
    kept = json_text.written(merged)
    check_size("search_attribute_size", without_keys(kept), SEARCH_ATTRIBUTE_BYTES_MAX)
    context.run = replace(context.run, search_attributes=kept)
    context.attributes_changed = True
    context.add_event(
        EventType.SEARCH_ATTRIBUTES_UPSERTED,
        {"sequence": context.run.last_step, "attributes": dict(command.attributes), "merged": merged},
    )


def _upsert_memo(context: CommandContext, command: UpsertMemo) -> None:
    merged = _merged(context.run.memo, command.entries)
    kept = json_text.written(merged)
    check_size("memo_size", kept, max(MEMO_BYTES_MAX, len(context.run.memo.encode())))
    context.run = replace(context.run, memo=kept)
    context.attributes_changed = True
    context.add_event(
        EventType.MEMO_UPSERTED,
        {
            "sequence": context.run.last_step,
            "entries": _envelope(command.blob),
            "merged": _envelope(payload_codec.encode(merged)),
        },
    )


def _merged(before: str, changes: Json) -> dict[str, Any]:
    """The entries updated with the changes; None deletes."""
    merged: dict[str, Any] = json_text.read(before) | dict(changes)
    return {name: value for name, value in merged.items() if value is not None}


def _envelope(blob: Blob) -> dict[str, str]:
    return {"codec": CODEC, "blob": blob}


def _open_condition_wait(context: CommandContext, command: OpenConditionWait) -> None:
    run = context.run
    extra = dict(command.extra)
    wait = ConditionWait(f"{run.run_id}-w{run.last_step}", run.last_step, command.key, command.fingerprint)
    context.add_event(
        EventType.CONDITION_WAIT_OPENED, wait_payload(wait) | {"timeout_seconds": command.timeout_s} | extra
    )
    if command.timeout_s is not None:
        fields = {"timer_kind": CONDITION_TIMEOUT, "condition_wait_id": wait.id, **extra}
        fields |= {"condition_key": wait.key, "condition_definition_fingerprint": wait.fingerprint}
        timer = _timer(context, command.timeout_s, command.timeout_s * 1000, fields)
        wait = replace(wait, timer_id=timer.timer_id, delay_s=timer.delay_s, fire_at_ms=timer.fire_at_ms)
        context.add_event(EventType.TIMER_SCHEDULED, timer_payload(timer))
    if parallel_groups.PATH in extra:
        context.waits = with_opened(context.waits, extra, wait.id)
    else:
        context.waits = replace(context.waits, condition=wait)


def _open_signal_wait(context: CommandContext, command: OpenSignalWait) -> None:
    """Open a wait for one signal. A signal that came before and that no wait has taken ends it at once."""
    run = context.run
    wait = SignalWait(f"{run.run_id}-g{run.last_step}", run.last_step, command.name)
    context.add_event(
        EventType.SIGNAL_WAIT_OPENED, signal_wait_payload(wait) | {"timeout_seconds": command.timeout_s}
    )
    waiting = context.unapplied_signals.get(command.name, [])
    if waiting:
        context.events.append(signal_applied(wait, waiting.pop(0)))
        context.wakes = True
        return
    if command.timeout_s is not None:
        fields = {"timer_kind": SIGNAL_TIMEOUT, "signal_wait_id": wait.id, "signal_name": wait.name}
        timer = _timer(context, command.timeout_s, command.timeout_s * 1000, fields)
        wait = replace(wait, timer_id=timer.timer_id, delay_s=timer.delay_s, fire_at_ms=timer.fire_at_ms)
        context.add_event(EventType.TIMER_SCHEDULED, timer_payload(timer))
    context.waits = replace(context.waits, signal=wait)


def _complete_update(context: CommandContext, command: CompleteUpdate) -> None:
    update, outcome = _update(context, command.update_id), {"result": command.result}
    if _is_closed_alike(update, UpdateStatus.COMPLETED, outcome):
        return
    payload = update_payload(update)
    if not context.concurrent:
        context.add_event(
            EventType.UPDATE_APPLIED, payload | {"arguments": update.arguments, "payload_codec": CODEC}
        )
    context.add_event(
        EventType.UPDATE_COMPLETED, payload | {"result": command.result, "payload_codec": CODEC}
    )
    _close_update(context, update, UpdateStatus.COMPLETED, outcome)


def _fail_update(context: CommandContext, command: FailUpdate) -> None:
    update = _update(context, command.update_id)
    failure = {"message": command.message, "failure_id": f"{update.update_id}-f1"} | dict(command.extra)
    if _is_closed_alike(update, UpdateStatus.FAILED, failure):
        return
    context.add_event(EventType.UPDATE_COMPLETED, update_payload(update) | failure)
    _close_update(context, update, UpdateStatus.FAILED, failure)


def _update(context: CommandContext, update_id: str) -> Update:
    """The update that a command closes, including effects of earlier commands."""
    update = context.update or context.applied.get(update_id) or context.accepted.get(update_id)
    if update is None or update.run_id != context.run.run_id:
        raise invalid_command(f"The run has accepted no update {update_id!r}.", update_id=update_id)
    return update


def _is_closed_alike(update: Update, status: UpdateStatus, outcome: dict[str, Any]) -> bool:
    """Whether it was already closed with the same outcome; raises if with another."""
    if update.status is UpdateStatus.ACCEPTED:
        return False
    if (update.status, update.outcome) != (status, json_text.written(outcome)):
        raise invalid_command(
            f"Update {update.update_id!r} has another outcome already.", update_id=update.update_id
        )
    return True


def _close_update(
    context: CommandContext, update: Update, status: UpdateStatus, outcome: dict[str, Any]
) -> None:
    context.applied[update.update_id] = replace(
        update, status=status, outcome=json_text.written(outcome), closed_at_ms=context.now_ms
    )
    context.run = replace(context.run, open_updates=context.run.open_updates - 1)


def invalid_command(message: str, **details: object) -> Conflict:
    """The error for a command that does not fit the state of its run."""
    return Conflict(Reason.INVALID_COMMANDS, message, **details)


def abandoned_member(
    waiting: waits.Waits, command: CancelSelectionOperation
) -> tuple[Selection, SelectionMember] | None:
    """The selection member that a command cancels, unless it has ended."""
    selection = waiting.selection(command.group_id)
    member = None if selection is None else selection.member(command.member_index)
    if selection is None or member is None or member.done or member.cancelled:
        return None
    return selection, member


def _cancel_selection_operation(context: CommandContext, command: CancelSelectionOperation) -> None:
    found = abandoned_member(context.waits, command)
    if found is None:
        return
    selection, member = found
    context.waits = context.waits.with_selection(selection.with_member(replace(member, cancelled=True)))
    context.cancelled.append(range(member.base, member.base + member.size))
    context.add_event(EventType.SELECTION_OPERATION_CANCELLED, dict(command.echoed))
    context.wakes = True


def _cancel_step(context: CommandContext, command: CancelStep) -> None:
    """Cancel a step. What the same workflow task started is removed before it begins."""
    step = command.step
    if step > context.run.last_step:
        raise invalid_command(f"The run has no step {step}.", step_sequence=step)
    if command.wait:
        payload = {"sequence": step, "step_sequence": step, "wait": True}
        context.add_event(EventType.STEP_CANCEL_REQUESTED, payload)
        context.never_begun += [activity for activity in context.activities if activity.step == step]
        context.asked_to_end.append(step)
        _unschedule(context, step)
        return
    context.add_event(EventType.STEP_CANCEL_REQUESTED, {"sequence": step, "step_sequence": step})
    context.cancelled.append(range(step, step + 1))
    left = tuple(each for each in context.waits.external if each != step)
    context.waits = replace(context.waits, external=left)
    _unschedule(context, step)


def _unschedule(context: CommandContext, step: int) -> None:
    """Remove what the same workflow task started at a step."""
    _unschedule_activity(context, step)
    timers = [timer for timer in context.timers if timer.step != step]
    children = [new for new in context.children if new.child.step != step]
    context.run = replace(
        context.run,
        open_timers=context.run.open_timers - len(context.timers) + len(timers),
        open_children=context.run.open_children - len(context.children) + len(children),
    )
    if len(children) < len(context.children):
        context.events = [each for each in context.events if not _is_start_of(each, step)]
    context.timers, context.children = timers, children
    context.requests = [each for each in context.requests if each.step != step]


def _unschedule_activity(context: CommandContext, step: int) -> None:
    index = next((index for index, each in enumerate(context.activities) if each.step == step), None)
    if index is not None:
        del context.activities[index], context.priorities[index]
        context.run = replace(context.run, open_activities=context.run.open_activities - 1)


def _is_start_of(event: NewEvent, step: int) -> bool:
    return event.type == EventType.CHILD_RUN_STARTED and event.payload["sequence"] == step


def _signal_external(context: CommandContext, command: SignalExternal) -> None:
    _request(
        context,
        ExternalRequest(
            context.run.last_step,
            command.workflow_id,
            command.run_id,
            "signal",
            command.signal_name,
            command.arguments,
            children_only=command.children_only,
        ),
    )


def _cancel_external(context: CommandContext, command: CancelExternal) -> None:
    _request(
        context,
        ExternalRequest(
            context.run.last_step,
            command.workflow_id,
            command.run_id,
            "cancel",
            reason=command.reason,
            children_only=command.children_only,
        ),
    )


def _request(context: CommandContext, request: ExternalRequest) -> None:
    payload = {
        "sequence": request.step,
        "kind": request.kind,
        "workflow_id": request.workflow_id,
        "run_id": request.run_id,
        "signal_name": request.signal_name,
    }
    context.requests.append(request)
    context.waits = replace(context.waits, external=(*context.waits.external, request.step))
    context.add_event(
        EventType.EXTERNAL_REQUEST_INITIATED,
        {name: value for name, value in payload.items() if value is not None},
    )


def _cancel_workflow(context: CommandContext, command: CancelWorkflow) -> None:
    reason = command.reason or "cancel requested"
    context.run = closed(context.run, RunStatus.CANCELLED, "cancelled", context.now_ms)
    context.add_event(
        EventType.WORKFLOW_CANCELLED, {"reason": reason, "message": reason, "closed_reason": "cancelled"}
    )


def _complete_workflow(context: CommandContext, command: CompleteWorkflow) -> None:
    context.run = closed(context.run, RunStatus.COMPLETED, "completed", context.now_ms, command.result)
    context.add_event(EventType.WORKFLOW_COMPLETED, {"output": command.result, "payload_codec": CODEC})


def _fail_workflow(context: CommandContext, command: FailWorkflow) -> None:
    if cancellation.is_let_through(context.waits, command.extra):
        _end_cancelled(context)
        return
    context.run = closed(context.run, RunStatus.FAILED, "failed", context.now_ms)
    payload = {"message": command.message, "failure_category": "application"} | dict(command.extra)
    context.add_event(EventType.WORKFLOW_FAILED, payload)


def _end_cancelled(context: CommandContext) -> None:
    """Close a run whose code let a delivered cancellation through."""
    asked = context.waits.cancellation
    assert asked is not None
    reason = asked.reason or "cancellation requested"
    context.run = closed(context.run, RunStatus.CANCELLED, "cancelled", context.now_ms)
    payload = {"reason": reason, "message": reason, "closed_reason": "cancelled"}
    context.add_event(EventType.WORKFLOW_CANCELLED, payload | {"workflow_command_id": asked.id})


def _continue_as_new(context: CommandContext, command: ContinueAsNew) -> None:
    if command.memo is not None:
        check_size("memo_size", json_text.written(command.memo), MEMO_BYTES_MAX)
    if command.search_attributes is not None:
        attributes = json_text.written(command.search_attributes)
        check_size("search_attribute_size", attributes, SEARCH_ATTRIBUTE_BYTES_MAX)
    before = replace(context.run, waits=context.waits)
    context.successor = lineage.continued(before, context.new_id(), command, context.now_ms)
    after = context.successor.run
    context.run = closed(context.run, RunStatus.COMPLETED, "continued", context.now_ms)
    context.add_event(
        EventType.WORKFLOW_CONTINUED_AS_NEW,
        {
            "continued_to_run_id": after.run_id,
            "continued_to_run_number": after.run_number,
            "closed_reason": "continued",
            "workflow_type": after.workflow_type,
            "task_queue": after.task_queue,
            "arguments": command.arguments,
            "payload_codec": CODEC,
        },
    )


def closed(run: Run, status: RunStatus, reason: str, now_ms: int, output: Blob | None = None) -> Run:
    return replace(
        run,
        status=status,
        closed_reason=reason,
        closed_at_ms=now_ms,
        deadline_at_ms=None,
        output=output,
    )


_APPLY: dict[type, Callable[[CommandContext, Any], None]] = {
    ScheduleActivity: _schedule_activity,
    RecordLocalActivity: _record_local_activity,
    StartTimer: _start_timer,
    StartChild: _start_child,
    RecordSideEffect: _record_side_effect,
    RecordVersionMarker: _record_version_marker,
    UpsertSearchAttributes: _upsert_search_attributes,
    UpsertMemo: _upsert_memo,
    OpenConditionWait: _open_condition_wait,
    OpenSignalWait: _open_signal_wait,
    CompleteUpdate: _complete_update,
    FailUpdate: _fail_update,
    CancelSelectionOperation: _cancel_selection_operation,
    CompleteWorkflow: _complete_workflow,
    FailWorkflow: _fail_workflow,
    ContinueAsNew: _continue_as_new,
    CancelStep: _cancel_step,
    SignalExternal: _signal_external,
    CancelExternal: _cancel_external,
    CancelWorkflow: _cancel_workflow,
}
