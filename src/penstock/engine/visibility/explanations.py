"""Why a run, an activity or a task waits.

Everything that the core's `explain` needs is read in one snapshot, from the same rows that dispatch decides on and
without locks: so an explanation is consistent in itself, and agrees with what the next claim would do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import pauses, waits
from penstock.core.history import structural_limits
from penstock.core.limits.admission import LEASES_MAX
from penstock.core.limits.policies import DispatchOrder, KeyState, LimitSetting, SettingValue
from penstock.core.model import (
    Activity,
    Queue,
    Run,
    RunHost,
    RunId,
    Task,
    TaskId,
    TaskKind,
    TaskState,
    Timer,
    WorkerRecord,
    task_id,
)
from penstock.core.scheduling.backlog import LaneBacklog
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.fairness import TAGGED_AT_ONCE_MAX, Lane, LaneState, VirtualClock
from penstock.core.scheduling.gates import ScopeState
from penstock.core.starts.unique_starts import is_unstarted, scope_of
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why import runs
from penstock.core.why.estimate import DispatchCounts, DispatchPace
from penstock.core.why.explain import WaitSnapshot, explain, held_by, holder
from penstock.core.why.position import LaneContext, LevelCounts, arrival_position, position, turn, with_tags
from penstock.core.why.values import Constraint, ConstraintKind, LeaseHolder, Position, WaitExplanation
from penstock.core.why.workers import QueueWorkers
from penstock.engine.activities.activity_control import no_activity
from penstock.engine.context import EngineContext
from penstock.engine.limits import lease_holders, policies
from penstock.engine.runs.history_writer import is_stranded
from penstock.engine.runs.run_lookup import locate_activity
from penstock.engine.runs.run_places import caps_of
from penstock.engine.visibility import start_reports
from penstock.engine.visibility.worker_coverage import load_workers
from penstock.errors import NotFound, Reason
from penstock.ports.gather import gather
from penstock.ports.store import Tx
from penstock.ports.tables.runs import UniqueKeyName

ACTIVITIES_EXPLAINED = 20
ACTIVITIES_READ_MAX = 500
LANES_READ = 1_000
LANES_COUNTED = 5_000
TASKS_COUNTED = 200_000
MOST = 2**62
_ANY_WORKER = WorkerFilter((), None)


class WhyResult(Struct, frozen=True):
    """A run, activity or task and why it waits; `parts` explain the open activities of a run."""

    run: Run
    explanation: WaitExplanation
    now_ms: int
    task: Task | None = None
    activity: Activity | None = None
    parts: Sequence[WhyResult] = ()
    timers: Sequence[Timer] = ()


async def workflow(ctx: EngineContext, namespace: str, workflow_id: str) -> WhyResult:
    """Why the current run of a workflow waits."""

    async def operation(tx: Tx) -> WhyResult:
        instance = await tx.runs.instance(namespace, workflow_id)
        run = None if instance is None else await tx.runs.get(instance.run_id)
        if run is None or run.host is not RunHost.WORKFLOW:
            raise NotFound(
                Reason.INSTANCE_NOT_FOUND, f"There is no workflow {workflow_id!r}.", workflow_id=workflow_id
            )
        return await _ExplanationReader(ctx, tx).of_run(run)

    return _expecting(ctx, await ctx.store.read(operation, long=True))


async def activity(ctx: EngineContext, namespace: str, activity_id: str) -> WhyResult:
    """Why a standalone activity waits, or one that a workflow scheduled."""

    async def operation(tx: Tx) -> WhyResult:
        found = await locate_activity(tx, namespace, activity_id)
        if found is None:
            raise no_activity(activity_id)
        return await _ExplanationReader(ctx, tx).of_activity(*found)

    return _expecting(ctx, await ctx.store.read(operation, long=True))


async def task(ctx: EngineContext, namespace: str, named: str) -> WhyResult:
    """Why a task waits."""

    async def operation(tx: Tx) -> WhyResult:
        found = await tx.tasks.get(TaskId(named))
        if found is None or found.namespace != namespace:
            raise NotFound(Reason.TASK_NOT_FOUND, f"There is no task {named!r}.", task_id=named)
        run = await tx.runs.get(found.run_id)
        if run is None:  # deleted by retention; its tasks are deleted next
            raise NotFound(Reason.TASK_NOT_FOUND, f"There is no task {named!r}.", task_id=named)
        doing = None if found.activity_id is None else await tx.activities.get(found.activity_id)
        return await _ExplanationReader(ctx, tx).of_task(run, found, doing)

    return _expecting(ctx, await ctx.store.read(operation, long=True))


def _expecting(ctx: EngineContext, found: WhyResult) -> WhyResult:
    """The explanation, whose forecasts are judged when their tasks start."""
    for each in (found, *found.parts):
        start_reports.expect(ctx, each.task, each.explanation.expected, each.now_ms)
    return found


async def constraints(ctx: EngineContext, tx: Tx, run: Run) -> Mapping[str, ConstraintKind]:
    """What binds the tasks of a run that wait now, by task id: its workflow task and its first open activities."""
    if not run.is_open:
        return {}
    reader = _ExplanationReader(ctx, tx)
    first = await reader.of_run(run)
    found = [first, *first.parts]
    if first.task is not None and 0 < run.open_activities <= ACTIVITIES_READ_MAX:
        activities = (await tx.activities.open_of(run.run_id))[:ACTIVITIES_EXPLAINED]
        found += [await reader.of_activity(run, each) for each in activities]
    return {
        each.task.task_id: each.explanation.binding.kind
        for each in found
        if each.task is not None and each.explanation.binding is not None
    }


class _QueueState(Struct, frozen=True):
    """What is read once for all tasks of a queue."""

    queue: Queue
    running: int
    scopes: Mapping[str, ScopeState]
    pauses: Mapping[str, SettingValue]
    queue_workers: QueueWorkers


class _LineReads(Struct, frozen=True):
    """What is read of the lanes of a task's queue."""

    own: LaneBacklog | None
    keys: Mapping[str, KeyState]
    counts: Sequence[LevelCounts]
    before: int
    """Tasks of its key that are before it."""
    clocks: Sequence[VirtualClock]
    new_lanes: Sequence[Lane]
    dispatched: DispatchCounts


class _ExplanationReader:
    """Reads, in one snapshot, what the core needs to explain a wait."""

    def __init__(self, ctx: EngineContext, tx: Tx) -> None:
        self._ctx = ctx
        self._tx = tx
        self._queue_states: dict[tuple[str, TaskKind], _QueueState] = {}

    async def of_run(self, run: Run) -> WhyResult:
        now_ms = self._tx.now_ms
        if not run.is_open:
            return WhyResult(run, runs.closed_run(run), now_ms)
        if run.waits.to_start:
            return await self._waiting_to_start(run)
        return await self._of_started(run, now_ms)

    async def _of_started(self, run: Run, now_ms: int) -> WhyResult:
        newest = await self._tx.tasks.get(task_id(run.run_id, run.last_task)) if run.last_task else None
        if newest is not None and newest.kind is TaskKind.WORKFLOW and newest.is_live:
            return await self.of_task(run, newest, None)
        if run.waits.paused is not None:
            return WhyResult(run, runs.paused(run.workflow_id, run.waits.paused, is_run=True), now_ms)
        return await self._without_task(run, now_ms)

    async def _without_task(self, run: Run, now_ms: int) -> WhyResult:
        """Why an open run has no workflow task: it waits for activities, or is idle."""
        timers, activities = await gather(
            self._tx.timers.open_of(run.run_id), self._tx.activities.open_of(run.run_id)
        )
        parts = [await self.of_activity(run, each) for each in activities[:ACTIVITIES_EXPLAINED]]
        if parts:
            named = [(each.activity.activity_type, each.explanation) for each in parts if each.activity]
            why = runs.waits_for_activities(run, named, len(activities), timers, now_ms)
        else:
            why = await self._idle(run, timers, now_ms)
        return WhyResult(run, why, now_ms, parts=parts, timers=timers)

    async def _waiting_to_start(self, run: Run) -> WhyResult:
        """The cap on runs that holds a run back; its delayed task, if the cap has just been lifted and the next turn
        admits it.
        """
        why = await self._held_back(run)
        if why is None:
            return await self._of_started(run, self._tx.now_ms)
        return WhyResult(run, why, self._tx.now_ms)

    async def _held_back(self, run: Run) -> WaitExplanation | None:
        place = await self._tx.run_places.waiting(run.run_id)
        caps = {cap.name: cap for cap in (await caps_of(self._tx, [run]))[run.run_id]}
        found = [
            each for each in await self._tx.scopes.find([*caps]) if place and each.scope_id == place.scope_id
        ]
        if place is None or not found:
            return None
        held = await self._tx.run_places.holders(place.scope_id, lease_holders.SHOWN)
        others = await self._tx.runs.get_many([each.run_id for each in held])
        holders = [
            LeaseHolder(None, each.workflow_id, each.task_queue, None, each.started_at_ms, None)
            for each in others
            if each is not None
        ]
        ahead = await self._tx.run_places.ahead(place)
        return runs.waits_to_start(run, caps[found[0].name], found[0].running, ahead, holders)

    async def _idle(self, run: Run, timers: Sequence[Timer], now_ms: int) -> WaitExplanation:
        """Why a run has no task: its code waits for a condition, children, timers or a message."""
        full = structural_limits.excess(run, self._ctx.bounds)
        condition = run.waits.condition
        if full is not None and not timers and not run.open_children and _needs_message(condition):
            return runs.beyond_limit(run, full)
        if is_stranded(run):
            return runs.stranded(run)
        if condition is not None:
            return runs.waits_for_condition(run, condition, now_ms)
        if run.waits.signal is not None:
            return runs.waits_for_one_signal(run, run.waits.signal, now_ms)
        if run.open_children:
            return runs.waits_for_children(run, await self._tx.children.open_of(run.run_id))
        return runs.waits_for_timers(run, timers, now_ms) if timers else runs.waits_for_signal(run)

    async def of_activity(self, run: Run, activity: Activity) -> WhyResult:
        found = await self._tx.tasks.get(activity.task_id)
        assert found is not None, "an activity has a task"
        return await self.of_task(run, found, activity)

    async def of_task(self, run: Run, found: Task, activity: Activity | None) -> WhyResult:
        pause = pauses.pause_of(run, found) if pauses.is_held(found) else None
        if pause is not None:
            held = runs.paused(_name(run, activity), pause, is_run=pause is run.waits.paused)
            return WhyResult(run, held, self._tx.now_ms, found, activity)
        if run.lineage.unique_key is not None and is_unstarted(found):
            joined = await self._debounced(run, run.lineage.unique_key, found, activity)
            if joined is not None:
                return WhyResult(run, joined, self._tx.now_ms, found, activity)
        return await self._of_queued(run, found, activity)

    async def _of_queued(self, run: Run, found: Task, activity: Activity | None) -> WhyResult:
        """Why a task waits that is neither held by a pause nor by a debounced start."""
        state, line = await gather(self._queue_state(found), self._line(found))
        own, counts = line.own, line.counts
        key = line.keys.get(found.key) or KeyState(found.key)
        place = await self._position(state.queue, found, line)
        situation = WaitSnapshot(
            subject=_name(run, activity),
            task=found,
            queue=state.queue,
            queue_workers=state.queue_workers,
            key=key,
            running=state.running,
            scopes=state.scopes,
            pauses=state.pauses,
            weight_milli=_weight(own, key),
            is_coordinated=self._ctx.coordination.is_supported,
            place=place,
            pace=_pace(found, line),
            head_cost=await self._head_cost(state.queue, place, counts),
            run_failures=run.task_failures,
            excess=structural_limits.excess(run, self._ctx.bounds),
            worker_deaths=0 if activity is None else activity.worker_deaths,
            is_quarantined=activity is not None and bool(activity.quarantined),
        )
        why = explain(situation)
        if why.binding is not None and why.binding.kind in (
            ConstraintKind.LEASES,
            ConstraintKind.KEY_RUNNING,
            ConstraintKind.SATURATED,
        ):
            why = held_by(why, await self._holders(state, found, why.binding))
        elif why.binding is not None and why.binding.holders:
            why = held_by(why, [holder(found, run.workflow_id, self._tx.now_ms)])
        return WhyResult(run, why, self._tx.now_ms, found, activity)

    async def _debounced(
        self, run: Run, key: str, found: Task, activity: Activity | None
    ) -> WaitExplanation | None:
        """Why the first task of a start with a unique key waits; None if it is due, or was not debounced."""
        due_at_ms, now_ms = found.available_at_ms, self._tx.now_ms
        scope = scope_of(run.workflow_type, None if activity is None else activity.activity_type)
        row = await self._tx.unique_keys.get(UniqueKeyName(run.namespace, scope, key))
        if due_at_ms <= now_ms or row is None or row.run_id != run.run_id or row.latest_at_ms is None:
            return None
        return runs.debounced(_name(run, activity), key, row.starts, due_at_ms, row.latest_at_ms, now_ms)

    async def _queue_state(self, found: Task) -> _QueueState:
        known = self._queue_states.get((found.task_queue, found.kind))
        if known is None:
            known = self._queue_states[found.task_queue, found.kind] = await self._read_queue_state(found)
        return known

    async def _read_queue_state(self, found: Task) -> _QueueState:
        tx = self._tx
        queue = await policies.find_queue(tx, found.namespace, found.task_queue, found.kind)
        limited = queue.rules.lease_cap is not None
        names = [each.name for each in queue.limits.scopes]
        running, (found_states, pauses), queue_workers = await gather(
            tx.queues.running(queue.queue_id, LEASES_MAX),
            gather(tx.scopes.find(names), self._pauses(queue)),
            load_workers(self._ctx, tx, queue.namespace, queue.name, queue.kind),
        )
        states = {state.name: state for state in found_states}
        return _QueueState(queue, running if limited else 0, states, pauses, queue_workers)

    async def _pauses(self, queue: Queue) -> Mapping[str, SettingValue]:
        """The pause settings of the queue and its scopes, by scope name."""
        held = {
            lease_holders.own_scope(queue): queue.policy.at(self._tx.now_ms).settings.get(LimitSetting.PAUSED)
        }
        if any(each.paused for each in queue.limits.scopes):
            admission = await self._tx.scopes.admission()
            for each in queue.limits.scopes:
                row = admission.row(each.name)
                held[each.name] = None if row is None else row.policy.settings.get(LimitSetting.PAUSED)
        return {name: setting for name, setting in held.items() if setting is not None}

    async def _line(self, found: Task) -> _LineReads:
        """What is read of the queue's lanes in one step, whatever of it turns out to matter."""
        tx, minute = self._tx, self._tx.now_ms // MINUTE_MS
        queue = await policies.find_queue(tx, found.namespace, found.task_queue, found.kind)
        queue_id, level = queue.queue_id, found.level
        (own, keys, counts), (before, clocks, new_lanes), (now, last) = await gather(
            gather(
                tx.queues.lane(queue_id, level, found.key, tx.now_ms),
                tx.policies.key_states(queue_id, [found.key]),
                tx.queues.level_counts(queue_id, level, tx.now_ms, LANES_COUNTED),
            ),
            gather(
                tx.queues.count_before(queue_id, level, found.key, found.seq, TASKS_COUNTED),
                tx.queues.clocks(queue_id),
                tx.queues.new_lanes(queue_id, level, TAGGED_AT_ONCE_MAX),
            ),
            gather(tx.queues.dispatched(queue_id, minute), tx.queues.dispatched(queue_id, minute - 1)),
        )
        return _LineReads(own, keys, counts, before, clocks, new_lanes, DispatchCounts(now, last))

    async def _position(self, queue: Queue, found: Task, line: _LineReads) -> Position | None:
        own = line.own
        if found.state is not TaskState.READY or own is None:
            return None
        if queue.rules.order is DispatchOrder.ARRIVAL:
            earlier = await self._tx.queues.count_before(
                queue.queue_id, found.level, None, found.seq, TASKS_COUNTED
            )
            return arrival_position(found, earlier, line.before, line.counts)
        return position(found, await self._lane_context(queue, own.lane, line))

    async def _head_cost(
        self, queue: Queue, place: Position | None, counts: Sequence[LevelCounts]
    ) -> int | None:
        """The cost of the task dispatched next, if it is another one and a cost budget applies."""
        level = next((each.level for each in counts if each.tasks), None)
        if place is None or not place.ahead or level is None:
            return None
        if all(each.cost is None for each in queue.limits.scopes):
            return None
        key = None
        if queue.rules.order is DispatchOrder.FAIR:
            key = await self._next_key(queue, level)
        head = await self._tx.queues.head(queue.queue_id, level, key)
        return None if head is None else head.cost

    async def _next_key(self, queue: Queue, level: int) -> str | None:
        """The fairness key that is served next at a level."""
        clocks = {clock.level: clock for clock in await self._tx.queues.clocks(queue.queue_id)}
        clock = clocks.get(level, VirtualClock(level))
        ready = await self._tx.queues.lanes_before(queue.queue_id, level, MOST, MOST, 1)
        fresh = await self._tx.queues.new_lanes(queue.queue_id, level, TAGGED_AT_ONCE_MAX)
        new_lanes = await self._tagged(queue, fresh, None, clock)
        lanes = [*ready, *new_lanes, *await self._requeued_lanes(queue, level)]
        return min(lanes, key=lambda lane: (lane.rank, lane.tag, lane.key)).key if lanes else None

    async def _lane_context(self, queue: Queue, own: Lane, line: _LineReads) -> LaneContext:
        queues, queue_id, before, counts = self._tx.queues, queue.queue_id, line.before, line.counts
        clock = {each.level: each for each in line.clocks}.get(own.level, VirtualClock(own.level))
        new_lanes, requeued = await gather(
            self._tagged(queue, line.new_lanes, own, clock), self._requeued_lanes(queue, own.level)
        )
        own = next((lane for lane in new_lanes if lane.lane_key == own.lane_key), own)
        tag = turn(own, before, clock.virtual)
        ready, counted = await gather(
            queues.lanes_before(queue_id, own.level, own.rank, tag, LANES_READ),
            queues.count_lanes_before(queue_id, own.level, own.rank, tag, LANES_COUNTED),
        )
        unread = counted - LANES_READ if len(ready) == LANES_READ else 0
        others = [lane for lane in (*ready, *new_lanes, *requeued) if lane.lane_key != own.lane_key]
        exact = not queue.rules.shares_by_running
        return LaneContext(own, before, others, len(others) + unread, clock, counts, exact)

    async def _tagged(
        self, queue: Queue, lanes: Sequence[Lane], own: Lane | None, clock: VirtualClock
    ) -> Sequence[Lane]:
        """The new lanes of a level, with the tags that the next claim will give them."""
        found = [*lanes]
        if (
            own is not None
            and own.state == LaneState.NEW
            and all(lane.lane_key != own.lane_key for lane in found)
        ):
            found.append(own)
        if not found:
            return ()
        overrides: dict[str, int] = {}
        if queue.policy.overridden_keys:
            states = await self._tx.policies.key_states(queue.queue_id, [lane.key for lane in found])
            overrides = {
                key: state.weight_milli for key, state in states.items() if state.weight_milli is not None
            }
        return with_tags(found, overrides, clock)

    async def _requeued_lanes(self, queue: Queue, level: int) -> Sequence[Lane]:
        """The blocked lanes of a level that the next claim will evaluate again."""
        rules, queue_id, queues = queue.rules, queue.queue_id, self._tx.queues
        stale = await queues.lanes_to_tag(queue_id, _ANY_WORKER, LaneState.DIRTY) if rules.needs_keys else ()
        due = await queues.lanes_due(queue_id, _ANY_WORKER, self._tx.now_ms) if rules.limits_keys else ()
        return [lane for lane in (*stale, *due) if lane.level == level]

    async def _holders(self, state: _QueueState, found: Task, binding: Constraint) -> Sequence[LeaseHolder]:
        """The holders of the leases that block the task, the first to expire first."""
        held = (await self._blocking_leases(state, found, binding))[: lease_holders.SHOWN]
        names = await self._workflows(held)
        return [holder(each, names.get(each.run_id), self._tx.now_ms) for each in held]

    async def _blocking_leases(self, state: _QueueState, found: Task, binding: Constraint) -> Sequence[Task]:
        scope = state.scopes.get(binding.scope or "")
        if binding.kind is ConstraintKind.LEASES and scope is not None:
            return await lease_holders.of_scope(self._tx, scope)
        held = await lease_holders.of_queue(self._tx, state.queue)
        if binding.kind is ConstraintKind.KEY_RUNNING:
            return [each for each in held if each.key == found.key]
        if binding.kind is ConstraintKind.SATURATED:
            return _held_by(held, state.queue_workers.serving(found))
        return held

    async def _workflows(self, held: Sequence[Task]) -> Mapping[RunId, str]:
        ids = list(dict.fromkeys(each.run_id for each in held))
        found = await self._tx.runs.get_many(ids) if ids else ()
        return {run.run_id: run.workflow_id for run in found if run is not None}


def _pace(found: Task, line: _LineReads) -> DispatchPace:
    higher = [each for each in line.counts if each.level < found.level]
    own = line.own
    return DispatchPace(
        line.dispatched,
        DispatchCounts(
            sum(each.dispatched for each in higher), sum(each.dispatched_before for each in higher)
        ),
        DispatchCounts() if own is None else DispatchCounts(own.dispatched, own.dispatched_before),
    )


def _held_by(leases: Sequence[Task], workers: Sequence[WorkerRecord]) -> Sequence[Task]:
    ids = {worker.worker_id for worker in workers}
    return [each for each in leases if each.lease_owner in ids]


def _needs_message(condition: waits.ConditionWait | None) -> bool:
    """Whether only a signal or an update can wake an idle run."""
    return condition is None or condition.fire_at_ms is None


def _name(run: Run, activity: Activity | None) -> str:
    """The display name of a run or activity."""
    if activity is None or run.host is RunHost.ACTIVITY:
        return run.workflow_id
    return f"{activity.activity_type} of {run.workflow_id}"


def _weight(own: LaneBacklog | None, key: KeyState) -> int:
    if own is None:
        return key.weight_milli or 1_000
    return replace(own.lane, override_milli=key.weight_milli).effective_milli
