"""The nouns of the model with sensible defaults, so that a test names only what it is about."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from penstock.core.model import (
    Activity,
    ActivityId,
    ActivityTimeouts,
    Blob,
    ChildRun,
    ClosePolicy,
    Cohort,
    Instance,
    Namespace,
    NewEvent,
    OutboxKind,
    OutboxMessage,
    Queue,
    RecordedEvent,
    RetainedRequest,
    RetrySchedule,
    Run,
    RunHost,
    RunId,
    Task,
    TaskId,
    TaskKind,
    TaskPriority,
    TaskState,
    Timer,
    TimerId,
    Update,
    UpdateStatus,
    WorkerRecord,
    WorkerStatus,
)

NOW_MS = 1_790_000_000_000
"""An ordinary moment."""


def a_namespace(name: str = "default", **changes: Any) -> Namespace:
    plain = Namespace(name, None, 30, "active", None, created_at_ms=NOW_MS, updated_at_ms=NOW_MS)
    return replace(plain, **changes)


def an_instance(workflow_id: str = "order-1", run_id: str = "r1", namespace: str = "default") -> Instance:
    return Instance(namespace, workflow_id, RunId(run_id), run_count=1)


def a_run(run_id: str = "r1", **changes: Any) -> Run:
    plain = Run(
        run_id=RunId(run_id),
        namespace="default",
        workflow_id="order-1",
        run_number=1,
        host=RunHost.WORKFLOW,
        workflow_type="Order",
        task_queue="orders",
        business_key=None,
        level=3,
        key="",
        weight_milli=1000,
        compatibility=None,
        input=Blob(""),
        memo="{}",
        search_attributes="{}",
        execution_timeout_s=None,
        run_timeout_s=None,
        execution_deadline_at_ms=None,
        run_deadline_at_ms=None,
        started_at_ms=NOW_MS,
        last_progress_at_ms=NOW_MS,
    )
    return replace(plain, **changes)


def an_event(run_id: str, sequence: int, type: str = "ActivityScheduled", **changes: Any) -> RecordedEvent:  # noqa: A002
    plain = RecordedEvent(RunId(run_id), sequence, type, "{}", recorded_at_ms=NOW_MS, task_id=None)
    return replace(plain, **changes)


def an_event_in_waiting(type: str = "SignalReceived", **payload: Any) -> NewEvent:  # noqa: A002
    return NewEvent(type, payload)


def a_task(queue: Queue, task_id: str = "r1-1", **changes: Any) -> Task:
    """A ready task of the queue's kind; its run is what its id names."""
    plain = Task(
        task_id=TaskId(task_id),
        queue_id=queue.queue_id,
        namespace=queue.namespace,
        task_queue=queue.name,
        kind=queue.kind,
        run_id=RunId(task_id.rpartition("-")[0]),
        activity_id=None if queue.kind is TaskKind.WORKFLOW else ActivityId(f"{task_id}-activity"),
        type="Order",
        compatibility=None,
        level=3,
        key="",
        state=TaskState.READY,
        available_at_ms=NOW_MS,
        enqueued_at_ms=NOW_MS,
    )
    return replace(plain, **changes)


def standing_of(task: Task, weight_milli: int = 1000) -> TaskPriority:
    return TaskPriority(task.level, task.key, weight_milli)


def leased(task: Task, token: str = "token-1", **changes: Any) -> Task:
    """The task as a grant leaves it."""
    held = replace(
        task,
        state=TaskState.LEASED,
        attempt=task.attempt + 1,
        lease_owner="worker-1",
        lease_token=token,
        lease_expires_at_ms=NOW_MS + 60_000,
        leased_at_ms=NOW_MS,
        poll_request_id="poll-1",
    )
    return replace(held, **changes)


def released(task: Task, state: TaskState, **changes: Any) -> Task:
    """The task after its lease, in the state that is given."""
    free = replace(
        task,
        state=state,
        lease_owner=None,
        lease_token=None,
        lease_expires_at_ms=None,
        leased_at_ms=None,
        poll_request_id=None,
    )
    return replace(free, **changes)


def an_activity(activity_id: str = "r1-a1", run_id: str = "r1", **changes: Any) -> Activity:
    plain = Activity(
        activity_id=ActivityId(activity_id),
        run_id=RunId(run_id),
        task_id=TaskId(f"{run_id}-2"),
        step=1,
        activity_type="Charge",
        task_queue="orders",
        arguments=Blob(""),
        retry=RetrySchedule(3, True, (1, 5), ("CardDeclined",)),
        timeouts=ActivityTimeouts(start_to_close_ms=30_000),
        extra="{}",
        scheduled_at_ms=NOW_MS,
    )
    return replace(plain, **changes)


def a_timer(timer_id: str = "r1-t1", run_id: str = "r1", **changes: Any) -> Timer:
    plain = Timer(
        TimerId(timer_id), RunId(run_id), step=1, delay_s=60, fire_at_ms=NOW_MS + 60_000, extra="{}"
    )
    return replace(plain, **changes)


def a_child(parent_run_id: str = "r1", step: int = 1, **changes: Any) -> ChildRun:
    plain = ChildRun(
        parent_run_id=RunId(parent_run_id),
        step=step,
        namespace="default",
        workflow_id=f"{parent_run_id}-child-{step}",
        run_id=RunId(f"{parent_run_id}-child-{step}-run"),
        workflow_type="Shipment",
        policy=ClosePolicy.ABANDON,
        extra="{}",
    )
    return replace(plain, **changes)


def a_letter(message_id: str = "letter-1", **changes: Any) -> OutboxMessage:
    plain = OutboxMessage(
        message_id, "default", "order-1", "r1", OutboxKind.CHILD_ENDED, "{}", created_at_ms=NOW_MS
    )
    return replace(plain, **changes)


def an_update(update_id: str = "u1", run_id: str = "r1", **changes: Any) -> Update:
    """An accepted one, the first of its run."""
    plain = Update(
        update_id=update_id,
        run_id=RunId(run_id),
        namespace="default",
        workflow_id="order-1",
        number=1,
        name="approve",
        arguments=Blob(""),
        request_id=None,
        status=UpdateStatus.ACCEPTED,
        outcome=None,
        accepted_at_ms=NOW_MS,
    )
    return replace(plain, **changes)


def a_request(request_id: str = "request-1", **changes: Any) -> RetainedRequest:
    plain = RetainedRequest(
        namespace="default",
        workflow_id="order-1",
        kind="signal",
        request_id=request_id,
        run_id=RunId("r1"),
        number=1,
        name="approve",
        digest="f00d",
        receipt="{}",
        at_ms=NOW_MS,
    )
    return replace(plain, **changes)


def a_worker(worker_id: str = "worker-1", **changes: Any) -> WorkerRecord:
    plain = WorkerRecord(
        namespace="default",
        worker_id=worker_id,
        task_queue="orders",
        runtime="python",
        sdk_version="2.12.0",
        build_id=None,
        workflow_types=("Order",),
        activity_types=("Charge", "Ship"),
        fingerprints={"Order": "f00d"},
        workflow_slots=10,
        activity_slots=20,
        status=WorkerStatus.ACTIVE,
        advertised={"capabilities": ["queries"], "limits": {"depth": 2}},
        task_slots=None,
        process_metrics=None,
        heartbeat_interval_s=10,
        registered_at_ms=NOW_MS,
        heartbeat_at_ms=NOW_MS,
        updated_at_ms=NOW_MS,
    )
    return replace(plain, **changes)


def a_cohort(build_id: str = "build-1", **changes: Any) -> Cohort:
    plain = Cohort(
        namespace="default",
        task_queue="orders",
        build_id=build_id,
        drain_intent="active",
        drained_at_ms=None,
        promoted_at_ms=None,
        rolled_back_at_ms=None,
        new_start_selected=0,
        updated_at_ms=NOW_MS,
    )
    return replace(plain, **changes)
