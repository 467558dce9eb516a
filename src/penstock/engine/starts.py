"""Starting: a workflow, or an activity that stands alone."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.history import waits
from penstock.core.history.applying import dispatched, expiring, schedule
from penstock.core.history.commands import ScheduleActivity
from penstock.core.history.events import EventType
from penstock.core.history.payloads import activity_payload, started
from penstock.core.model import Activity, ActivityId, Blob, Event, Host, Instance, Run, RunId, Standing
from penstock.core.scheduling.retries import first_available_ms
from penstock.core.timers import earliest
from penstock.engine.addressing import Address, find
from penstock.engine.house import House
from penstock.engine.recording import append, hold_back, line_up, line_up_activity
from penstock.engine.requests import retain, retained
from penstock.engine.search_attributes import check_start
from penstock.engine.signals import Accepted, Signal, counted, receipt_of, received, send
from penstock.engine.successors import pinned
from penstock.errors import Conflict, Reason, Unavailable
from penstock.ports.store import Keyed, Tx
from penstock.ports.together import both

STANDALONE_TYPE = "penstock.activity"
"""The workflow type under which a standalone activity's host run is kept."""


class DuplicatePolicy(StrEnum):
    FAIL = "fail"
    USE_EXISTING = "use-existing"


class StartOutcome(StrEnum):
    STARTED_NEW = "started_new"
    RETURNED_EXISTING_ACTIVE = "returned_existing_active"


class Start(Struct, frozen=True):
    """What a caller asks to be started."""

    namespace: str
    workflow_type: str
    task_queue: str
    input: Blob
    workflow_id: str | None = None
    business_key: str | None = None
    memo: str = "{}"
    search_attributes: str = "{}"
    duplicate_policy: DuplicatePolicy = DuplicatePolicy.FAIL
    execution_timeout_s: int | None = None
    run_timeout_s: int | None = None
    standing: Standing = field(default_factory=Standing)
    build_id: str | None = None
    start_key: str | None = None
    delay_ms: int = 0
    """Of a workflow: how long its code waits before it runs first."""
    delivers_cancel: bool = False
    """Of a workflow: whether a cancel request before its first workflow task is delivered to its code."""


class Started(Struct, frozen=True):
    run: Run
    outcome: StartOutcome
    deduplicated: bool = False
    activity: Activity | None = None
    """Of a standalone activity."""


async def start_workflow(house: House, request: Start, signal: Signal | None = None) -> Started:
    """Record the run, its first event and its first workflow task, together; and a signal that comes with it."""
    start = workflow_start(house, request, signal)
    return await house.store.transact(start.operation, key=start.key)


def workflow_start(house: House, request: Start, signal: Signal | None = None) -> Keyed[Started]:
    """The same as an operation that is yet to be carried out."""
    run_id = RunId(house.entropy.new_id())
    workflow_id = request.workflow_id or _made_id("wf", request, run_id)

    async def operation(tx: Tx) -> Started:
        await check_start(tx, request.namespace, request.search_attributes)
        compatibility, taken = await both(
            _pin(tx, request), _take_id(tx, request, workflow_id, run_id, Host.WORKFLOW)
        )
        if taken is not None:
            return taken
        run = _new_run(request, Host.WORKFLOW, workflow_id, run_id, compatibility, tx.now_ms)
        first = started(run)
        run = append(tx, run, [first])
        if signal is not None:
            run = counted(run)
            run = hold_back(tx, run, [received(run, signal)])
            retain(tx, run, signal.request, receipt_of(run))
        run = await line_up(tx, run, at_ms=tx.now_ms + request.delay_ms)
        tx.runs.insert(run)
        return Started(run, StartOutcome.STARTED_NEW)

    return Keyed(operation, f"workflow:{request.namespace}:{workflow_id}")


async def signal_with_start(house: House, request: Start, signal: Signal) -> tuple[Started, Accepted]:
    """Start a workflow with a signal in its history, or send the signal to the open run that has its id.

    A start that is repeated with its key signals once, and a signal that was taken is acknowledged though its run
    has ended since.
    """
    if signal.request_id is None and request.start_key is not None:
        signal = replace(signal, request_id=_signal_key(request.start_key))
    try:
        begun = await start_workflow(
            house, replace(request, duplicate_policy=DuplicatePolicy.USE_EXISTING), signal
        )
    except Conflict as refusal:
        taken = await _taken_before(house, request, signal)
        if taken is None:
            raise refusal from None
        return taken
    if begun.outcome is StartOutcome.STARTED_NEW and not begun.deduplicated:
        return begun, Accepted(begun.run, receipt_of(begun.run))
    address = Address(request.namespace, begun.run.workflow_id)
    return begun, await send(house, replace(signal, address=address))


def _signal_key(start_key: str) -> str:
    return f"start:{hashlib.sha256(start_key.encode()).hexdigest()}"


async def _taken_before(house: House, request: Start, signal: Signal) -> tuple[Started, Accepted] | None:
    """The receipt of the same signal, sent before to a run that is closed by now."""
    workflow_id = request.workflow_id
    if workflow_id is None or signal.request_id is None:
        return None

    async def operation(tx: Tx) -> tuple[Started, Accepted] | None:
        receipt = await retained(tx, request.namespace, workflow_id, signal.request)
        if receipt is None:
            return None
        run = await find(tx, Address(request.namespace, workflow_id))
        begun = Started(run, StartOutcome.RETURNED_EXISTING_ACTIVE, deduplicated=True)
        return begun, Accepted(run, receipt, retained=True)

    return await house.store.read(operation)


async def start_activity(house: House, request: Start, command: ScheduleActivity) -> Started:
    """Record a hidden host run whose only step is the activity. No workflow code is involved."""
    start = activity_start(house, request, command)
    return await house.store.transact(start.operation, key=start.key)


def activity_start(house: House, request: Start, command: ScheduleActivity) -> Keyed[Started]:
    """The same as an operation that is yet to be carried out."""
    run_id = RunId(house.entropy.new_id())
    activity_id = request.workflow_id or _made_id("act", request, run_id)

    async def operation(tx: Tx) -> Started:
        taken = await _take_id(tx, request, activity_id, run_id, Host.ACTIVITY)
        if taken is not None:
            existing = await tx.activities.get(ActivityId(f"{taken.run.run_id}-a1"))
            return replace(taken, activity=existing)
        run = _new_run(request, Host.ACTIVITY, activity_id, run_id, request.build_id, tx.now_ms)
        due_ms = tx.now_ms + command.delay_ms
        asked = expiring(command, due_ms)
        activity = schedule(run, asked, due_ms)
        said = activity_payload(activity) | dispatched(activity, asked)
        run = append(tx, run, [started(run), Event(EventType.ACTIVITY_SCHEDULED, said)])
        ready_ms = first_available_ms(activity, tx.now_ms)
        await line_up_activity(tx, run, activity, command.wish.over(run.standing), ready_ms)
        tx.runs.insert(run)
        return Started(run, StartOutcome.STARTED_NEW, activity=activity)

    return Keyed(operation, f"workflow:{request.namespace}:{activity_id}")


def _made_id(prefix: str, request: Start, run_id: RunId) -> str:
    """The id of a start that names none: the same for a start that is repeated with its key."""
    if request.start_key is None:
        return f"{prefix}-{run_id}"
    return f"{prefix}-{hashlib.sha256(request.start_key.encode()).hexdigest()[:32]}"


async def _pin(tx: Tx, request: Start) -> str | None:
    """The build that the run belongs to: the one asked for, else the promoted cohort's, else none."""
    return request.build_id or await pinned(tx, request.namespace, request.task_queue)


async def _take_id(tx: Tx, request: Start, workflow_id: str, run_id: RunId, host: Host) -> Started | None:
    """None when the id is ours now; else what the duplicate policy makes of the run that has it.

    A workflow is never taken for a standalone activity, nor the other way round.
    """
    standing = await tx.runs.reserve(Instance(request.namespace, workflow_id, run_id, 1))
    if standing.run_id == run_id:
        return None
    existing = await tx.runs.get(standing.run_id)
    if existing is None:  # deleted between two questions, on another server
        raise Unavailable(
            Reason.STORE_UNAVAILABLE,
            f"The last run of {workflow_id!r} was deleted just now. Start it again.",
            outcome="none",
            retryable=True,
        )
    if existing.host is not host:
        raise _in_use(existing)
    if request.start_key is not None and existing.start_key == request.start_key:
        return Started(existing, StartOutcome.STARTED_NEW, deduplicated=True)
    if request.duplicate_policy is DuplicatePolicy.USE_EXISTING and existing.is_open:
        return Started(existing, StartOutcome.RETURNED_EXISTING_ACTIVE)
    raise _in_use(existing)


def _in_use(existing: Run) -> Conflict:
    return Conflict(
        Reason.INSTANCE_ALREADY_STARTED,
        f"{existing.workflow_id!r} is in use by a run that is {existing.status.value}. "
        "Choose another id, or start with duplicate_policy use-existing while that run is open.",
        workflow_id=existing.workflow_id,
        run_id=existing.run_id,
        outcome="rejected_duplicate",
        status=existing.status.value,
    )


def _new_run(
    request: Start, host: Host, workflow_id: str, run_id: RunId, compatibility: str | None, now_ms: int
) -> Run:
    """A run as it is when nothing of it is recorded; one that hosts an activity has that step already."""
    hosts = int(host is Host.ACTIVITY)
    begins_at_ms = now_ms if hosts else now_ms + request.delay_ms
    execution_deadline = _after(begins_at_ms, request.execution_timeout_s)
    run_deadline = _after(begins_at_ms, request.run_timeout_s)
    return Run(
        run_id=run_id,
        namespace=request.namespace,
        workflow_id=workflow_id,
        run_number=1,
        host=host,
        workflow_type=request.workflow_type,
        task_queue=request.task_queue,
        business_key=request.business_key,
        level=request.standing.level,
        key=request.standing.key,
        weight_milli=request.standing.weight_milli,
        compatibility=compatibility,
        input=request.input,
        memo=request.memo,
        search_attributes=request.search_attributes,
        execution_timeout_s=request.execution_timeout_s,
        run_timeout_s=request.run_timeout_s,
        execution_deadline_at_ms=execution_deadline,
        run_deadline_at_ms=run_deadline,
        started_at_ms=now_ms,
        start_key=request.start_key,
        last_progress_at_ms=now_ms,
        deadline_at_ms=earliest(execution_deadline, run_deadline),
        last_step=hosts,
        last_task=hosts,
        open_activities=hosts,
        waits=_first_waits(request, host),
    )


def _first_waits(request: Start, host: Host) -> str:
    if host is Host.ACTIVITY:
        return "{}"
    return waits.FRESH_DELIVERING if request.delivers_cancel else waits.FRESH


def _after(now_ms: int, timeout_s: int | None) -> int | None:
    return None if timeout_s is None else now_ms + timeout_s * 1000
