"""Task queues in SQL: lanes, virtual clocks and minute meters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.limits import windows
from penstock.core.limits.admission import QueueLimits
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.model import Queue, QueueId, QueueStats, Task, TaskKind
from penstock.core.scheduling.backlog import (
    ALL_KEYS,
    BEFORE_ALL_KEYS,
    Backlog,
    KeyFilter,
    KeyPlace,
    LaneBacklog,
    LevelBacklog,
)
from penstock.core.scheduling.dispatch import BlockedLanes, WorkerFilter
from penstock.core.scheduling.fairness import (
    ALL_LEVELS,
    TAGGED_AT_ONCE_MAX,
    Arrival,
    Lane,
    LaneState,
    Starving,
    VirtualClock,
)
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.position import LevelCounts
from penstock.ports.gather import gather
from penstock.stores.sql.matching.queue_limits import admission_of, policy_of, rate_conflict_of
from penstock.stores.sql.session import Repository, Row, Rows
from penstock.stores.sql.tasks.tasks import TASKS, filter_values, matching, route, task_of

ROUTES_TRIED_MAX = 2
"""Most routes that are tried in every lane; with more, the relevant ones are determined per lane."""


class SqlQueues(Repository):
    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        who, session = (namespace, name, kind), self._session
        known = session.immutable.queues.get(who) or session.cacheable.queues.get(who)
        if known is not None:
            return known
        rows = await session.fetch("get_queue", *who)
        if not rows:
            [held] = await session.fetch("hold_admission")
            await session.fetch("create_queue", *who, str(held[1]))
            rows = await session.fetch("get_queue", *who)
        [queue] = await self.decoded(rows)
        session.cacheable.queues[who] = queue
        return queue

    async def find(self, namespace: str, name: str) -> Sequence[Queue]:
        return await self.decoded(await self._session.fetch("find_queues", namespace, name))

    async def list(self, namespace: str) -> Sequence[Queue]:
        return await self.decoded(await self._session.fetch("list_queues", namespace))

    async def lock(self, queue_id: QueueId) -> Queue | None:
        rows = await self._session.fetch("lock_queue", queue_id)
        return (await self.decoded(rows))[0] if rows else None

    async def decoded(self, rows: Rows) -> Sequence[Queue]:
        """Queues from their rows, each with the limits in force for it."""
        known, found, now_ms = self._session.immutable.admissions, [], self._session.now_ms
        for row in rows:
            _, queue_id, namespace, name, kind, paused, text, micro, worker_id, at_ms, paid, turn = row[:12]
            dispatched, stamp, until_ms, burst_ms, conflict, fair = row[12:18]
            rate = None
            if micro is not None:
                rate = WorkerRate(micro, worker_id, at_ms, until_ms, burst_ms, rate_conflict_of(conflict))
            admission = known.get(stamp) or await admission_of(self._session, stamp)
            policy = policy_of(text)
            limits: QueueLimits = admission.of(namespace, name, kind, policy, now_ms)
            window = windows.read(dispatched) if dispatched else windows.NOTHING
            found.append(
                Queue(
                    queue_id,
                    namespace,
                    name,
                    TaskKind(kind),
                    paused,
                    policy,
                    rate,
                    paid,
                    turn,
                    fair,
                    window,
                    limits,
                    now_ms,
                )
            )
        return found

    async def lanes(
        self, queue_id: QueueId, worker_filter: WorkerFilter, room: int, levels: tuple[int, int] = ALL_LEVELS
    ) -> Sequence[Lane]:
        return await self._lanes("least_lanes", queue_id, worker_filter, self._session.now_ms, *levels, room)

    async def lanes_to_tag(
        self, queue_id: QueueId, worker_filter: WorkerFilter, lane_state: LaneState
    ) -> Sequence[Lane]:
        name = "new_lanes" if lane_state is LaneState.NEW else "dirty_lanes"
        return await self._lanes(name, queue_id, worker_filter, self._session.now_ms, TAGGED_AT_ONCE_MAX)

    async def lanes_due(self, queue_id: QueueId, worker_filter: WorkerFilter, now_ms: int) -> Sequence[Lane]:
        return await self._lanes("lanes_due", queue_id, worker_filter, now_ms, TAGGED_AT_ONCE_MAX)

    async def _lanes(
        self, name: str, queue_id: QueueId, worker_filter: WorkerFilter, *values: int
    ) -> Sequence[Lane]:
        """Lanes, by the tasks in them that match a filter."""
        rows = await self._session.fetch(*matching(name, queue_id, worker_filter), *values)
        return [Lane(*row[1:]) for row in rows]

    async def wake_due_lanes(self, queue_id: QueueId, now_ms: int) -> None:
        await self._session.fetch("reopen_due_lanes", queue_id, now_ms)

    async def arrivals(
        self,
        queue_id: QueueId,
        worker_filter: WorkerFilter,
        room: int,
        now_ms: int,
        levels: tuple[int, int] = ALL_LEVELS,
    ) -> Sequence[tuple[Arrival, Lane]]:
        _, _, build_id, sticky = matching("arrivals", queue_id, worker_filter)
        paths = filter_values(worker_filter).routes
        if paths:
            parameters = [(queue_id, path, sticky, now_ms, *levels, room) for path in paths]
            answers = await self._session.fetch_each("arrivals_of_route", parameters)
            rows = sorted((row for answer in answers for row in answer), key=lambda row: (row[2], row[1]))
        else:
            values = (queue_id, build_id, sticky, now_ms, *levels, room)
            rows = [*await self._session.fetch("arrivals", *values)]
        return [(Arrival(row[2], row[1], row[3]), Lane(*row[2:])) for row in rows[:room]]

    async def blocked(self, queue_id: QueueId) -> BlockedLanes:
        row = (await self._session.fetch("blocked_lanes", queue_id))[0]
        return BlockedLanes(row[1], bool(row[2]))

    async def starving(self, queue_id: QueueId, since_ms: int, most: int) -> Sequence[Starving]:
        parameters = [(queue_id, level, since_ms, most) for level in range(ALL_LEVELS[0], ALL_LEVELS[1] + 1)]
        answers = await self._session.fetch_each("starving_level", parameters)
        found = [(level, rows[0]) for (_, level, _, _), rows in zip(parameters, answers, strict=True)]
        return [Starving(level, row[1], row[2]) for level, row in found if row[2]]

    async def running(self, queue_id: QueueId, most: int) -> int:
        return int((await self._session.fetch("count_running", queue_id, most))[0][1])

    async def clocks(self, queue_id: QueueId) -> Sequence[VirtualClock]:
        return [VirtualClock(*row[1:]) for row in await self._session.fetch("get_clocks", queue_id)]

    async def rebase(self, queue_id: QueueId, clock: VirtualClock) -> None:
        await self._session.fetch("rebase_lanes", queue_id, clock.level, clock.virtual)
        await self._session.fetch("rebase_clock", queue_id, clock.level)

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], worker_filter: WorkerFilter
    ) -> Sequence[Sequence[Task]]:
        session, values = self._session, filter_values(worker_filter)
        now = (values.sticky_workers, session.now_ms)
        name = "take_tasks_of_route" if values.routes else "take_tasks"
        paths: Sequence[Sequence[str | None]] = [values.routes or [worker_filter.build_id]] * len(wanted)
        if len(values.routes) > ROUTES_TRIED_MAX:
            lanes = [(queue_id, *lane, values.wanted, *now) for lane in wanted]
            paths = [[row[1] for row in rows] for rows in await session.fetch_each("first_routes", lanes)]
        parameters = [
            (queue_id, *lane, path, *now) for lane, mine in zip(wanted, paths, strict=True) for path in mine
        ]
        found = iter(await session.fetch_each(name, parameters))
        cached, taken = session.row_cache.tables.get(TASKS), []
        for (_, _, count), mine in zip(wanted, paths, strict=True):
            tasks = [task_of(row) for _ in mine for row in next(found)]
            taken.append(sorted(tasks, key=lambda task: task.seq)[:count])
            if cached is not None:
                for task in tasks:
                    cached.add(task)
        return taken

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats:
        (row,), heads = await gather(
            self._session.fetch("queue_stats", queue_id, now_ms, now_ms // MINUTE_MS),
            self._session.fetch("oldest_of_levels", queue_id),
        )
        oldest = [task_of(head) for head in heads]
        return QueueStats(
            ready=int(row[1]),
            leased=int(row[2]),
            expired=int(row[3]),
            delayed=int(row[4]),
            added_last_minute=row[5] or 0,
            dispatched_last_minute=row[6] or 0,
            oldest=min(oldest, key=lambda task: (task.enqueued_at_ms, task.seq), default=None),
            claimed=int(row[7]),
            counted=int(row[8]),
        )

    async def totals(self, namespace: str, kind: TaskKind, minute: int) -> tuple[int, int]:
        row = (await self._session.fetch("namespace_totals", namespace, kind, minute))[0]
        return int(row[1]), int(row[2])

    async def backlog(
        self,
        queue_id: QueueId,
        now_ms: int,
        top: int,
        wanted: KeyFilter = ALL_KEYS,
        after: KeyPlace = BEFORE_ALL_KEYS,
    ) -> Backlog:
        minute = now_ms // MINUTE_MS
        levels, heads, lanes = await gather(
            self._session.fetch("backlog_by_level", queue_id, minute),
            self._session.fetch("oldest_of_levels", queue_id),
            self._session.fetch(
                "largest_lanes",
                queue_id,
                minute,
                wanted.search,
                wanted.key,
                after.count,
                after.level,
                after.key,
                top,
            ),
        )
        oldest = {task.level: task.enqueued_at_ms for task in map(task_of, heads)}
        return Backlog(
            levels=tuple(_level(row, oldest.get(row[1])) for row in levels),
            lanes=tuple(LaneBacklog(Lane(*row[1:13]), *row[13:]) for row in lanes),
        )

    async def lane(self, queue_id: QueueId, level: int, key: str, now_ms: int) -> LaneBacklog | None:
        rows = await self._session.fetch("get_lane", queue_id, level, key, now_ms // MINUTE_MS)
        return LaneBacklog(Lane(*rows[0][1:13]), *rows[0][13:]) if rows else None

    async def lanes_before(
        self, queue_id: QueueId, level: int, rank: int, tag: int, most: int
    ) -> Sequence[Lane]:
        rows = await self._session.fetch("lanes_before", queue_id, level, rank, tag, most)
        return [Lane(*row[1:]) for row in rows]

    async def count_lanes_before(self, queue_id: QueueId, level: int, rank: int, tag: int, most: int) -> int:
        return int((await self._session.fetch("count_lanes_before", queue_id, level, rank, tag, most))[0][1])

    async def new_lanes(self, queue_id: QueueId, level: int, most: int) -> Sequence[Lane]:
        rows = await self._session.fetch("new_lanes_of_level", queue_id, level, most)
        return [Lane(*row[1:]) for row in rows]

    async def count_before(self, queue_id: QueueId, level: int, key: str | None, seq: int, most: int) -> int:
        if key is None:
            rows = await self._session.fetch("count_before_in_level", queue_id, level, seq, most)
        else:
            rows = await self._session.fetch("count_before_in_lane", queue_id, level, key, seq, most)
        return int(rows[0][1])

    async def head(self, queue_id: QueueId, level: int, key: str | None) -> Task | None:
        if key is None:
            rows = await self._session.fetch("oldest_at_level", queue_id, level)
        else:
            rows = await self._session.fetch("head_of_lane", queue_id, level, key)
        return task_of(rows[0]) if rows else None

    async def heads(
        self, queue_id: QueueId, level: int, wanted: Mapping[str, int]
    ) -> Mapping[str, Sequence[Task]]:
        parameters = [(queue_id, level, key, most) for key, most in wanted.items()]
        answers = await self._session.fetch_each("heads_of_lane", parameters)
        return {key: [task_of(row) for row in rows] for key, rows in zip(wanted, answers, strict=True)}

    async def route_heads(self, queue_id: QueueId, most: int) -> Sequence[Task]:
        tasks = [task_of(row) for row in await self._session.fetch("heads_of_routes", queue_id, most)]
        return sorted(tasks, key=lambda task: (task.type, task.compatibility or ""))

    async def count_route(self, queue_id: QueueId, type_: str, build_id: str | None, most: int) -> int:
        rows = await self._session.fetch("count_route", queue_id, route(type_, build_id), most)
        return int(rows[0][1])

    async def level_counts(
        self, queue_id: QueueId, to_level: int, now_ms: int, most: int
    ) -> Sequence[LevelCounts]:
        levels = range(ALL_LEVELS[0], to_level + 1)
        parameters = [(queue_id, level, now_ms // MINUTE_MS, now_ms, most) for level in levels]
        answers = await self._session.fetch_each("level_summary", parameters)
        return [_sight(level, rows[0], most) for level, rows in zip(levels, answers, strict=True)]

    async def dispatched(self, queue_id: QueueId, minute: int) -> int:
        rows = await self._session.fetch("get_meter", queue_id, minute)
        return int(rows[0][2]) if rows else 0

    def settle(
        self,
        queue_id: QueueId,
        lanes: Sequence[tuple[Lane, int]],
        clocks: Sequence[VirtualClock] = (),
        dispatched: int = 0,
    ) -> None:
        session, minute = self._session, self._session.now_ms // MINUTE_MS
        for lane, taken in lanes:
            session.record(
                "settle_lane",
                queue_id,
                lane.level,
                lane.key,
                lane.tag,
                lane.rank,
                lane.weight_milli,
                lane.override_milli,
                int(lane.state),
                lane.open_at_ms,
                lane.held_at,
                taken,
                minute,
            )
        for clock in clocks:
            session.record("save_clock", queue_id, clock.level, clock.virtual, clock.placed)
        if dispatched:
            session.record("count_dispatched", queue_id, minute, dispatched)

    def refund(self, queue_id: QueueId, level: int, key: str, stride: int, minute: int) -> None:
        self._session.record("refund_lane", queue_id, level, key, stride, minute)

    async def idle_lanes(self, limit: int) -> Sequence[tuple[QueueId, int, str]]:
        rows = await self._session.fetch("idle_lanes", limit)
        return [(QueueId(row[1]), row[2], row[3]) for row in rows]

    def drop_lane(self, queue_id: QueueId, level: int, key: str) -> None:
        self._session.record("drop_lane", queue_id, level, key)

    async def any_meter_before(self, minute: int) -> bool:
        return bool(await self._session.fetch("any_meter_before", minute))

    def forget_meters(self, before_minute: int) -> None:
        self._session.record("forget_meters", before_minute)

    def count_dispatches(self, queue_id: QueueId, minute: int, count: int) -> None:
        self._session.record("count_dispatched", queue_id, minute, count)


def _sight(level: int, row: Row, most: int) -> LevelCounts:
    keys, tasks, dispatched, before, rows = (int(value) for value in row[1:6])
    return LevelCounts(level, keys, tasks, dispatched, before, rows < most)


def _level(row: Row, oldest_ms: int | None) -> LevelBacklog:
    level, count, keys, weight_milli, dispatched, before = (int(value) for value in row[1:7])
    return LevelBacklog(level, count, keys, weight_milli, dispatched, before, oldest_ms)
