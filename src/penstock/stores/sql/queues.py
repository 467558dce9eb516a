"""Task queues in SQL: lines, lanes, virtual clocks and minute meters."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from penstock.core.model import Queue, QueueId, QueueStats, Task, TaskKind
from penstock.core.scheduling.dispatch import Fit
from penstock.core.scheduling.fairness import Clockwork, Lane
from penstock.core.timers import MINUTE_MS
from penstock.stores.sql.session import QueueName, Row, Session
from penstock.stores.sql.tasks import routes, routes_of, task_of

ROUTES_TRIED_MAX = 2
"""Most routes that are tried in every lane; of more, each lane is asked which ones matter."""


class SqlQueues:
    def __init__(self, session: Session, known: Mapping[QueueName, Queue]) -> None:
        self._session = session
        self._known = known
        """Queues that are committed: a queue's id never changes, so this may be remembered."""

    async def ensure(self, namespace: str, name: str, kind: TaskKind) -> Queue:
        known = self._known.get((namespace, name, kind)) or self._session.learned.get((namespace, name, kind))
        if known is not None:
            return known
        rows = await self._session.ask("get_queue", namespace, name, kind)
        if not rows:
            await self._session.ask("create_queue", namespace, name, kind)
            rows = await self._session.ask("get_queue", namespace, name, kind)
        queue = _queue(rows[0])
        self._session.learned[namespace, name, kind] = queue
        return queue

    async def find(self, namespace: str, name: str) -> Sequence[Queue]:
        return [_queue(row) for row in await self._session.ask("find_queues", namespace, name)]

    async def list(self, namespace: str) -> Sequence[Queue]:
        return [_queue(row) for row in await self._session.ask("list_queues", namespace)]

    async def lock(self, queue_id: QueueId) -> Queue | None:
        rows = await self._session.ask("lock_queue", queue_id)
        return _queue(rows[0]) if rows else None

    async def lanes(self, queue_id: QueueId, fit: Fit, room: int) -> Sequence[Lane]:
        if fit.types:
            routes = routes_of(fit)
            fresh = await self._session.ask("lanes_to_place_of_routes", queue_id, routes)
            least = await self._session.ask("least_lanes_of_routes", queue_id, routes, room)
        else:
            fresh = await self._session.ask("lanes_to_place", queue_id, fit.build_id)
            least = await self._session.ask("least_lanes", queue_id, fit.build_id, room)
        return [Lane(*row[1:]) for row in (*fresh, *least)]

    async def clocks(self, queue_id: QueueId) -> Sequence[Clockwork]:
        return [Clockwork(*row[1:]) for row in await self._session.ask("get_clocks", queue_id)]

    async def take(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], fit: Fit
    ) -> Sequence[Sequence[Task]]:
        if not fit.types:
            answers = await self._session.ask_each(
                "take_tasks", ((queue_id, level, key, count, fit.build_id) for level, key, count in wanted)
            )
            return [[task_of(row) for row in rows] for rows in answers]
        paths = await self._paths(queue_id, wanted, fit)
        asked = [
            (queue_id, level, key, count, path)
            for (level, key, count), mine in zip(wanted, paths, strict=True)
            for path in mine
        ]
        found = iter(await self._session.ask_each("take_tasks_of_route", asked))
        taken = []
        for (_, _, count), mine in zip(wanted, paths, strict=True):
            tasks = [task_of(row) for _ in mine for row in next(found)]
            taken.append(sorted(tasks, key=lambda task: task.seq)[:count])
        return taken

    async def _paths(
        self, queue_id: QueueId, wanted: Sequence[tuple[int, str, int]], fit: Fit
    ) -> Sequence[Sequence[str]]:
        """For each lane the routes to take from: of many, only those that can give one of the next tasks."""
        paths = routes(fit)
        if len(paths) <= ROUTES_TRIED_MAX:
            return [paths] * len(wanted)
        answers = await self._session.ask_each(
            "first_routes", ((queue_id, level, key, count, routes_of(fit)) for level, key, count in wanted)
        )
        return [[str(row[1]) for row in rows] for rows in answers]

    async def stats(self, queue_id: QueueId, now_ms: int) -> QueueStats:
        ready = (await self._session.ask("count_ready", queue_id))[0]
        leased = (await self._session.ask("count_leased", queue_id, now_ms))[0]
        delayed = (await self._session.ask("count_delayed", queue_id))[0]
        meter: builtins.list[Row] = [*await self._session.ask("get_meter", queue_id, now_ms // MINUTE_MS)]
        oldest = await self._session.ask("oldest_ready", queue_id)
        return QueueStats(
            ready=int(ready[1]),
            leased=int(leased[1]),
            expired=int(leased[2]),
            delayed=int(delayed[1]),
            added_last_minute=int(meter[0][1]) if meter else 0,
            dispatched_last_minute=int(meter[0][2]) if meter else 0,
            oldest=task_of(oldest[0]) if oldest else None,
        )

    def settle(self, queue_id: QueueId, lane: Lane, taken: int) -> None:
        self._session.record(
            "settle_lane", queue_id, lane.level, lane.key, lane.tag, lane.weight_milli, taken
        )

    def save_clock(self, queue_id: QueueId, clock: Clockwork) -> None:
        self._session.record("save_clock", queue_id, clock.level, clock.virtual, clock.placed)

    async def idle_lanes(self, limit: int) -> Sequence[tuple[QueueId, int, str]]:
        rows = await self._session.ask("idle_lanes", limit)
        return [(QueueId(row[1]), row[2], row[3]) for row in rows]

    def drop_lane(self, queue_id: QueueId, level: int, key: str) -> None:
        self._session.record("drop_lane", queue_id, level, key)

    async def any_meter_before(self, minute: int) -> bool:
        return bool(await self._session.ask("any_meter_before", minute))

    def forget_meters(self, before_minute: int) -> None:
        self._session.record("forget_meters", before_minute)

    def count_dispatches(self, queue_id: QueueId, minute: int, count: int) -> None:
        self._session.record("count_dispatched", queue_id, minute, count)


def _queue(row: Row) -> Queue:
    return Queue(row[1], row[2], row[3], TaskKind(row[4]), row[5])
