"""Starting workflows and standalone activities."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core import waits
from penstock.core.attribution import Caller
from penstock.core.history.command_effects import dispatched, expiring, schedule
from penstock.core.history.commands import ScheduleActivity
from penstock.core.history.events import EventType
from penstock.core.history.payloads import activity_payload, started
from penstock.core.id_policies import (
    CONTRACT,
    IdConflictPolicy,
    IdPolicy,
    IdReusePolicy,
    StartDecision,
    decide_start,
)
from penstock.core.model import (
    NO_LINEAGE,
    Activity,
    ActivityId,
    Blob,
    Instance,
    Lineage,
    NewEvent,
    Run,
    RunHost,
    RunId,
    TaskPriority,
)
from penstock.core.schedules.record import FireKey
from penstock.core.scheduling.retries import first_available_ms
from penstock.core.starts.unique_starts import UniqueStart, scope_of
from penstock.core.timestamps import MINUTE_MS, earliest
from penstock.engine.context import EngineContext
from penstock.engine.messaging import messages
from penstock.engine.messaging.signals import Signal, SignalReceipt, counted, receipt_of, received, send
from penstock.engine.runs import workflow_ids
from penstock.engine.runs.address import Address
from penstock.engine.runs.history_writer import (
    append,
    buffer_events,
    enqueue_activity_task,
    enqueue_workflow_task,
)
from penstock.engine.runs.idempotency import retain
from penstock.engine.runs.workflow_ids import Replaced
from penstock.engine.visibility.search_attributes import check_start
from penstock.engine.workflows import start_caps, unique_starts
from penstock.engine.workflows.run_close import EndMode, close_now
from penstock.engine.workflows.start_caps import StartCaps, first_task_at_ms
from penstock.engine.workflows.unique_starts import KeyedStart
from penstock.errors import Conflict, Reason
from penstock.ports.gather import gather
from penstock.ports.store import Transaction, Tx
from penstock.ports.tables.runs import UniqueKeyName

STANDALONE_TYPE = "penstock.activity"
"""The workflow type of a standalone activity's host run."""
OUT_OF_REACH_MS = 60 * MINUTE_MS
"""Delay of an activity that expired before it was recorded, so that its timeout ends it before any poll."""
TERMINATED_BY_START = "terminated by a start with id_conflict_policy terminate_existing"


class DuplicatePolicy(StrEnum):
    """The API contract's policy for an id in use. It never allows reuse of a closed run's id."""

    FAIL = "fail"
    USE_EXISTING = "use-existing"


class StartOutcome(StrEnum):
    """Whether a start began a run or returned an existing one."""

    STARTED_NEW = "started_new"
    RETURNED_EXISTING_ACTIVE = "returned_existing_active"
    DEBOUNCED = "debounced"
    """An existing run that no worker has started took the input of this start."""


_CONFLICTS = {
    DuplicatePolicy.FAIL: IdConflictPolicy.FAIL,
    DuplicatePolicy.USE_EXISTING: IdConflictPolicy.USE_EXISTING,
}


class Start(Struct, frozen=True):
    """A request to start a workflow or a standalone activity."""

    namespace: str
    workflow_type: str
    task_queue: str
    input: Blob
    workflow_id: str | None = None
    business_key: str | None = None
    memo: str = "{}"
    search_attributes: str = "{}"
    duplicate_policy: DuplicatePolicy = DuplicatePolicy.FAIL
    id_reuse_policy: IdReusePolicy | None = None
    id_conflict_policy: IdConflictPolicy | None = None
    execution_timeout_s: int | None = None
    run_timeout_s: int | None = None
    priority: TaskPriority = field(default_factory=TaskPriority)
    build_id: str | None = None
    start_key: str | None = None
    delay_ms: int = 0
    """Of a workflow: the delay of its first workflow task."""
    delivers_cancel: bool = False
    """Of a workflow: whether a cancel request before its first workflow task is delivered to its code."""
    fire: FireKey | None = None
    """The fire of a schedule that this start carries out."""
    concurrency_key: str | None = None
    """Of a workflow: the key whose cap on runs counts it."""
    unique: UniqueStart | None = None
    """Its unique key, which another run may hold."""

    @property
    def id_policy(self) -> IdPolicy:
        """The reuse and conflict policies. A start with neither field follows the contract: no reuse."""
        conflict = self.id_conflict_policy or _CONFLICTS[self.duplicate_policy]
        if self.id_reuse_policy is None and self.id_conflict_policy is None:
            return replace(CONTRACT, conflict=conflict)
        return IdPolicy(self.id_reuse_policy or IdReusePolicy.ALLOW_DUPLICATE, conflict)


class StartResult(Struct, frozen=True):
    """The started or returned run; `deduplicated` if an earlier start with the same key answered."""

    run: Run
    outcome: StartOutcome
    deduplicated: bool = False
    activity: Activity | None = None
    """Of a standalone activity."""


async def start_workflow(ctx: EngineContext, request: Start, signal: Signal | None = None) -> StartResult:
    """Commit `workflow_start`."""
    start = workflow_start(ctx, request, signal)
    return await ctx.store.transact(start.operation, key=start.key)


def workflow_start(
    ctx: EngineContext, request: Start, signal: Signal | None = None
) -> Transaction[StartResult]:
    """Record a run, its first events, an optional signal and its first workflow task.

    A workflow id that is taken is handled in the same transaction: see `runs.workflow_ids`.
    """
    run_id = RunId(ctx.entropy.new_id())
    workflow_id = request.workflow_id or _made_id("wf", request, run_id)

    async def operation(tx: Tx) -> StartResult:
        await check_start(tx, request.namespace, request.search_attributes)
        instance = Instance(request.namespace, workflow_id, run_id, 1)
        taking = _take_id(tx, request, instance, signal)
        (build_id, may_be_capped), taken = await gather(_context(tx, request), taking)
        if isinstance(taken, StartResult):
            return taken
        if request.unique is not None:
            held = await _take_key(tx, request, request.unique, instance, taken)
            if held is not None:
                return held
        started_at_ms = workflow_ids.started_at_ms(taken.replaced, tx.now_ms)
        run = _new_run(request, RunHost.WORKFLOW, workflow_id, run_id, build_id, started_at_ms)
        run = replace(run, run_number=taken.run_number)
        ready_at_ms = tx.now_ms + request.delay_ms
        caps = await StartCaps.locked(ctx, tx, [run]) if may_be_capped else None
        if caps is not None and (refusal := caps.refusal(run)) is not None:
            _give_up(tx, taken, instance)
            raise refusal
        replaced = await _take_over(ctx, tx, taken, run_id)
        if caps is not None:
            if taken.replaced is not None and taken.replaced.is_open:
                caps.give_way(taken.replaced)
            run = await caps.admit(run, ready_at_ms)
        streams = await messages.begin_after(tx, replaced, run) if replaced else ()
        run = append(tx, run, [_started(request, run, ctx.caller), *streams])
        if signal is not None:
            run = counted(run)
            run = buffer_events(tx, run, [received(run, signal, ctx.caller)])
            retain(tx, run, signal.request, receipt_of(run))
        run = await enqueue_workflow_task(tx, run, at_ms=first_task_at_ms(run, ready_at_ms))
        tx.runs.insert(run)
        start_caps.record(caps)
        return StartResult(run, StartOutcome.STARTED_NEW)

    return Transaction(operation, f"workflow:{request.namespace}:{workflow_id}")


async def signal_with_start(
    ctx: EngineContext, request: Start, signal: Signal
) -> tuple[StartResult, SignalReceipt]:
    """Start a workflow with a signal in its history, or send the signal to the open run with its id.

    A start repeated with its key signals once, and its signal is acknowledged even if the run has closed since. If the
    open run closes before the signal is recorded, the start is decided again.
    """
    if signal.request_id is None and request.start_key is not None:
        signal = replace(signal, request_id=_signal_key(request.start_key))
    if request.id_policy.conflict is IdConflictPolicy.FAIL:
        request = replace(request, duplicate_policy=DuplicatePolicy.USE_EXISTING, id_conflict_policy=None)
    for tries_left in reversed(range(workflow_ids.TRIES)):
        begun = await start_workflow(ctx, request, signal)
        if begun.outcome is StartOutcome.STARTED_NEW and not begun.deduplicated:
            return begun, SignalReceipt(begun.run, receipt_of(begun.run))
        address = Address(request.namespace, begun.run.workflow_id)
        try:
            return begun, await send(ctx, replace(signal, address=address))
        except Conflict as refusal:
            if not tries_left or not _may_start_again(request, begun, refusal):
                raise
    raise AssertionError("the last try returns or raises")


def _may_start_again(request: Start, begun: StartResult, refusal: Conflict) -> bool:
    """Whether the open run closed before it got the signal, and its id may be reused."""
    if refusal.reason is not Reason.RUN_NOT_ACTIVE or begun.deduplicated:
        return False
    return request.id_policy.reuse is not IdReusePolicy.REJECT_DUPLICATE


def _signal_key(start_key: str) -> str:
    return f"start:{hashlib.sha256(start_key.encode()).hexdigest()}"


def activity_start(ctx: EngineContext, request: Start, command: ScheduleActivity) -> Transaction[StartResult]:
    """Record a standalone activity as the only step of a hidden host run. No workflow code is involved."""
    run_id = RunId(ctx.entropy.new_id())
    activity_id = request.workflow_id or _made_id("act", request, run_id)

    async def operation(tx: Tx) -> StartResult:
        instance = Instance(request.namespace, activity_id, run_id, 1)
        taken = await _take_id(tx, request, instance, host=RunHost.ACTIVITY)
        if isinstance(taken, StartResult):
            return await _with_activity(tx, taken)
        if request.unique is not None:
            held = await _take_key(tx, request, request.unique, instance, taken, command.activity_type)
            if held is not None:
                return await _with_activity(tx, held)
        await _take_over(ctx, tx, taken, run_id)
        started_at_ms = workflow_ids.started_at_ms(taken.replaced, tx.now_ms)
        run = _new_run(request, RunHost.ACTIVITY, activity_id, run_id, request.build_id, started_at_ms)
        run = replace(run, run_number=taken.run_number)
        due_ms = tx.now_ms + command.delay_ms
        command_in_force = expiring(command, due_ms)
        activity = schedule(run, command_in_force, due_ms)
        payload = activity_payload(activity) | dispatched(activity, command_in_force)
        run = append(tx, run, [started(run), NewEvent(EventType.ACTIVITY_SCHEDULED, payload)])
        ready_ms = first_available_ms(activity, tx.now_ms)
        await enqueue_activity_task(tx, run, activity, command.priority.over(run.priority), ready_ms)
        tx.runs.insert(run)
        return StartResult(run, StartOutcome.STARTED_NEW, activity=activity)

    return Transaction(operation, f"workflow:{request.namespace}:{activity_id}")


async def _with_activity(tx: Tx, existing: StartResult) -> StartResult:
    return replace(existing, activity=await tx.activities.get(ActivityId(f"{existing.run.run_id}-a1")))


async def _take_key(
    tx: Tx,
    request: Start,
    unique: UniqueStart,
    instance: Instance,
    taken: Taken,
    activity_type: str | None = None,
) -> StartResult | None:
    """Take the unique key of a start, or return the result of a start that begins no run because another holds it."""
    again = await _kept_answer(tx, request, instance)
    if again is None:
        name = UniqueKeyName(request.namespace, scope_of(request.workflow_type, activity_type), unique.key)
        keyed = KeyedStart(name, unique, instance.run_id, request.input, taken.replaced)
        held = await unique_starts.take_key(tx, keyed)
        if held is None:
            return None
        again = StartResult(
            held.run, StartOutcome.DEBOUNCED if held.is_debounced else StartOutcome.RETURNED_EXISTING_ACTIVE
        )
        retained = replace(held.run, workflow_id=instance.workflow_id)
        workflow_ids.retain_start(tx, retained, request.start_key, again.outcome)
    _give_up(tx, taken, instance)
    return again


async def _kept_answer(tx: Tx, request: Start, instance: Instance) -> StartResult | None:
    """The result of the same start sent before, which joined a run of another workflow id."""
    if request.start_key is None:
        return None
    before = await workflow_ids.started_before(tx, request.namespace, instance.workflow_id, request.start_key)
    return None if before is None else StartResult(before[0], StartOutcome(before[1]), deduplicated=True)


def _started(request: Start, run: Run, caller: Caller | None) -> NewEvent:
    """The first event of a run. The deadlines of one that may be delayed again are not known yet."""
    if request.unique is not None and request.unique.debounce is not None:
        run = replace(run, execution_deadline_at_ms=None, run_deadline_at_ms=None)
    return started(run, caller)


def _made_id(prefix: str, request: Start, run_id: RunId) -> str:
    """The id of a start without one; a start repeated with its key gets the same id."""
    if request.start_key is None:
        return f"{prefix}-{run_id}"
    return f"{prefix}-{hashlib.sha256(request.start_key.encode()).hexdigest()[:32]}"


async def _context(tx: Tx, request: Start) -> tuple[str | None, bool]:
    """The build id that the run is pinned to (the requested one, else the promoted cohort's, else none), and whether
    the namespace may have caps on runs.
    """
    promoted, may_be_capped = await tx.cohorts.start_context(request.namespace, request.task_queue)
    return request.build_id or promoted, may_be_capped


class Taken(Struct, frozen=True):
    """The id is reserved for this start, or that of a run that `_take_over` replaces."""

    run_number: int = 1
    replaced: Run | None = None
    """The run that the id named before, locked."""


async def _take_id(
    tx: Tx,
    request: Start,
    instance: Instance,
    signal: Signal | None = None,
    host: RunHost = RunHost.WORKFLOW,
) -> Taken | StartResult:
    """Reserve the id for a new run, or return the result of a start that begins none. Raises `Conflict` if refused.

    A workflow and a standalone activity never replace each other. Invariant `one-open-run`: a run is replaced only
    under its lock, while it is the newest of its id, and is closed before the transaction ends.
    """
    for _ in range(workflow_ids.TRIES):
        existing = await workflow_ids.newest(tx, instance)
        if existing is None:
            return Taken()
        decided = await _decide_unlocked(tx, request, existing, signal, host)
        if isinstance(decided, StartResult):
            return decided
        locked = await workflow_ids.lock_newest(tx, existing)
        if locked is not None and decide_start(locked.run, request.id_policy) is decided:
            return await _decided(tx, request, locked, decided)
    raise workflow_ids.busy(instance.workflow_id)


async def _decide_unlocked(
    tx: Tx, request: Start, existing: Run, signal: Signal | None, host: RunHost
) -> StartDecision | StartResult:
    """The result of a start that needs no lock, or the decision to be checked again under the lock.

    Raises `Conflict` if the start is refused.
    """
    answer = await _answered_before(tx, request, existing, signal) if existing.host is host else None
    if answer is not None:
        return answer
    decided = decide_start(existing, request.id_policy)
    if existing.host is not host or decided is StartDecision.REFUSE:
        raise _in_use(existing, request)
    if decided is StartDecision.USE_EXISTING and (request.start_key is None or signal is not None):
        return StartResult(existing, StartOutcome.RETURNED_EXISTING_ACTIVE)
    return decided


async def _answered_before(
    tx: Tx, request: Start, existing: Run, signal: Signal | None
) -> StartResult | None:
    """The result of the same start sent before, found by its key or by the request id of its signal."""
    key, workflow_id = request.start_key, existing.workflow_id
    if key is not None and existing.start_key == key:
        return StartResult(existing, StartOutcome.STARTED_NEW, deduplicated=True)
    before = (
        None if key is None else await workflow_ids.started_before(tx, request.namespace, workflow_id, key)
    )
    if before is not None:
        return StartResult(before[0], StartOutcome(before[1]), deduplicated=True)
    if signal is None or signal.request_id is None:
        return None
    sent = await tx.requests.get(request.namespace, workflow_id, signal.request.kind, signal.request_id)
    run = None if sent is None else await tx.runs.get(sent.run_id)
    return None if run is None else StartResult(run, StartOutcome.RETURNED_EXISTING_ACTIVE, deduplicated=True)


async def _decided(tx: Tx, request: Start, locked: Replaced, decided: StartDecision) -> Taken | StartResult:
    """The outcome of a decision made under the lock of the newest run."""
    existing = locked.run
    if decided is StartDecision.USE_EXISTING:
        again = await _answered_before(
            tx, request, existing, None
        )  # another server may have answered it before this one got the lock
        if again is not None:
            return again
        outcome = StartOutcome.RETURNED_EXISTING_ACTIVE
        workflow_ids.retain_start(tx, existing, request.start_key, outcome)
        return StartResult(existing, outcome)
    return Taken(locked.next_number, existing)


async def _take_over(ctx: EngineContext, tx: Tx, taken: Taken, run_id: RunId) -> Run | None:
    """Point the id at the new run, in place of one that is closed before; returns that one."""
    before = taken.replaced
    if before is None:
        return None
    if before.is_open:
        before = await close_now(ctx, tx, before, EndMode.TERMINATE, TERMINATED_BY_START)
    workflow_ids.replace_newest(tx, before, run_id, taken.run_number)
    return before


def _give_up(tx: Tx, taken: Taken, instance: Instance) -> None:
    """Release the id of a start that is refused, for callers that record its refusal in the same transaction."""
    if taken.replaced is None:
        tx.runs.release(instance)


def _in_use(existing: Run, request: Start) -> Conflict:
    workflow_id = existing.workflow_id
    if existing.is_open:
        remedy = (
            "Choose another id, or start with id_conflict_policy use_existing to get that run (in the contract: "
            "duplicate_policy use-existing), or terminate_existing to end it first."
        )
    elif request.id_policy.reuse is IdReusePolicy.ALLOW_DUPLICATE:
        remedy = "Choose another id."  # a workflow under the id of an activity, or the other way round
    else:
        remedy = "Choose another id, or start with id_reuse_policy allow_duplicate."
    return Conflict(
        Reason.INSTANCE_ALREADY_STARTED,
        f"{workflow_id!r} is in use by {_called(existing)} that is {existing.status.value}. {remedy}",
        workflow_id=workflow_id,
        run_id=existing.run_id,
        outcome="rejected_duplicate",
        status=existing.status.value,
    )


def _called(existing: Run) -> str:
    return "a standalone activity" if existing.host is RunHost.ACTIVITY else "a run"


def _new_run(
    request: Start, host: RunHost, workflow_id: str, run_id: RunId, compatibility: str | None, now_ms: int
) -> Run:
    """The initial state of a run. A host run already has its activity step."""
    hosts = int(host is RunHost.ACTIVITY)
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
        level=request.priority.level,
        key=request.priority.key,
        weight_milli=request.priority.weight_milli,
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
        lineage=_lineage(request),
        last_step=hosts,
        last_task=hosts,
        open_activities=hosts,
        waits=_first_waits(request, host),
    )


def _lineage(request: Start) -> Lineage:
    if request.fire is None and request.concurrency_key is None and request.unique is None:
        return NO_LINEAGE
    unique = request.unique
    return Lineage(
        fire=request.fire,
        concurrency_key=request.concurrency_key,
        unique_key=None if unique is None else unique.key,
        unique_until=None if unique is None else unique.until.value,
    )


def _first_waits(request: Start, host: RunHost) -> waits.Waits:
    if host is RunHost.ACTIVITY:
        return waits.NO_WAITS
    return waits.NEW_RUN_DELIVERING_CANCEL if request.delivers_cancel else waits.NEW_RUN


def _after(now_ms: int, timeout_s: int | None) -> int | None:
    return None if timeout_s is None else now_ms + timeout_s * 1000
