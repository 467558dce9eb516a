"""Admission scopes in SQL: the limits in force, and the leases and costs that each scope counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from penstock.core.limits import windows
from penstock.core.limits.admission import NO_ADMISSION, Admission, Declaration, QueueLimits, ScopeRow
from penstock.core.limits.policies import Policy, PolicyChange
from penstock.core.limits.rate_reports import RateConflict, WorkerRate
from penstock.core.model import Queue, QueueId, Task, TaskKind
from penstock.core.scheduling.gates import ScopeState
from penstock.stores.sql.immutable_cache import ImmutableCache
from penstock.stores.sql.limits.policies import policy_of
from penstock.stores.sql.session import Row, Session
from penstock.stores.sql.tasks.tasks import task_of


class SqlScopes:
    def __init__(self, session: Session, immutable: ImmutableCache) -> None:
        self._session = session
        self._immutable = immutable

    async def admission(self) -> Admission:
        return (await self._read())[1]

    async def lock_admission(self) -> Admission:
        await self._session.fetch("lock_admission")
        return await self.admission()

    async def _read(self) -> tuple[str, Admission]:
        rows = await self._session.fetch("get_admission")
        stamp, version, declared, by, at_ms = rows[0][1:6]
        scopes = tuple(ScopeRow(row[6], row[7], policy_of(row[8])) for row in rows if row[6] is not None)
        return stamp, Admission(version, declaration_of(declared), scopes, by, at_ms)

    async def admission_of(self, stamp: str) -> Admission:
        """The limits of a queue with this stamp; or the current ones: a change that concerns it renews its stamp."""
        cacheable = self._session.cacheable.admissions
        known = self._immutable.admissions.get(stamp) or cacheable.get(stamp)
        if known is not None:
            return known
        latest, admission = await self._read()
        cacheable[stamp] = cacheable[latest] = admission
        return admission

    async def stamp_now(self) -> str:
        """The stamp of the limits in force, which are locked until the commit."""
        return str((await self._session.fetch("hold_admission"))[0][1])

    async def lock_queues(self, namespace: str | None) -> Sequence[Queue]:
        """Lock queues by the same statement as changes of a single queue, so that both never share a group."""
        if namespace is None:
            found = await self._session.fetch("all_queue_ids")
        else:
            found = await self._session.fetch("queue_ids_of", namespace)
        answers = await self._session.fetch_each("lock_queue", ((row[1],) for row in found))
        return [await self.queue_from(row) for rows in answers for row in rows]

    async def queue_from(self, row: Row) -> Queue:
        """A queue from its row, with the limits in force for it."""
        return queue_of(row, await self.admission_of(row[13]), self._session.now_ms)

    async def names(self, after: str, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("scope_names", after, limit)]

    async def ids(self, names: Sequence[str]) -> Sequence[int]:
        ids = {name: self._immutable.scopes[name] for name in names if name in self._immutable.scopes}
        ids |= await self._existing([name for name in dict.fromkeys(names) if name not in ids])
        if missing := [name for name in dict.fromkeys(names) if name not in ids]:
            await self._session.fetch_each("create_scope", ((name,) for name in missing))
            ids |= await self._existing(missing)
        self._session.cacheable.scopes.update(ids)
        return [ids[name] for name in names]

    async def _existing(self, names: Sequence[str]) -> dict[str, int]:
        """The ids of the scopes that have a row."""
        answers = await self._session.fetch_each("get_scope", ((name,) for name in names))
        return {name: int(rows[0][1]) for name, rows in zip(names, answers, strict=True) if rows}

    async def lock(self, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        return await self._states("lock_scope", scope_ids)

    async def states(self, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        return await self._states("scope_state", scope_ids)

    async def _states(self, statement: str, scope_ids: Sequence[int]) -> Sequence[ScopeState]:
        if "scopes_at_once" in self._session.statements:
            ids = msgspec.json.encode(sorted(scope_ids)).decode()
            return [_state(row) for row in await self._session.fetch("scopes_at_once", ids)]
        parameters = ((scope_id,) for scope_id in sorted(scope_ids))
        return [_state(rows[0]) for rows in await self._session.fetch_each(statement, parameters)]

    async def find(self, names: Sequence[str]) -> Sequence[ScopeState]:
        """The states of those scopes that have a row."""
        answers = await self._session.fetch_each("get_scope", ((name,) for name in names))
        return await self.states([rows[0][1] for rows in answers if rows])

    async def settlements(self, scope_id: int) -> Sequence[tuple[int, int]]:
        return [(row[1], row[2]) for row in await self._session.fetch("fold_settlements", scope_id)]

    async def counted(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        parameters = ((queue_id, str(scope_id)) for queue_id in queue_ids)
        return sum(int(rows[0][1]) for rows in await self._session.fetch_each("count_adopted", parameters))

    async def difference(self, scope_id: int) -> int:
        return int((await self._session.fetch("scope_difference", scope_id, str(scope_id)))[0][1])

    async def adopt(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        parameters = ((queue_id, str(scope_id)) for queue_id in queue_ids)
        return sum(len(rows) for rows in await self._session.fetch_each("adopt_leases", parameters))

    async def hold(self, scope_id: int, queue_ids: Sequence[QueueId]) -> int:
        parameters = ((queue_id, str(scope_id)) for queue_id in queue_ids)
        return sum(len(rows) for rows in await self._session.fetch_each("hold_adopted", parameters))

    async def holders(self, scope_id: int, queue_id: QueueId, limit: int) -> Sequence[Task]:
        rows = await self._session.fetch("leases_in_scope", queue_id, str(scope_id), limit)
        return [task_of(row) for row in rows]

    async def changes(self, name: str, limit: int) -> Sequence[PolicyChange]:
        rows = await self._session.fetch("scope_changes", name, limit)
        return [PolicyChange(row[1], row[2], row[3], row[4], None, row[5], row[6], row[7]) for row in rows]

    def settle(self, state: ScopeState) -> None:
        self._session.record(
            "settle_scope",
            state.scope_id,
            state.granted,
            windows.written(state.window),
            windows.written(state.costs),
            state.cool_until_ms,
            state.cool_given,
        )

    def settle_cost(self, scope_id: int, at_ms: int, amount: int) -> None:
        self._session.record("settle_cost", scope_id, at_ms, amount)

    async def any_settlement_before(self, at_ms: int) -> bool:
        return bool(await self._session.fetch("any_settlement_before", at_ms))

    def forget_settlements(self, before_ms: int) -> None:
        self._session.record("forget_settlements", before_ms)

    def cool(self, scope_id: int, until_ms: int) -> None:
        self._session.record("cool_scope", scope_id, until_ms)

    def save_policy(self, scope_id: int, policy: Policy) -> None:
        self._session.record("save_scope_policy", scope_id, msgspec.json.encode(policy).decode())

    def log(self, name: str, changes: Sequence[PolicyChange]) -> None:
        for number, each in enumerate(changes):
            self._session.record(
                "log_scope_change",
                name,
                each.version,
                number,
                each.at_ms,
                each.author,
                each.setting,
                each.before,
                each.after,
                each.reason,
            )

    def forget_changes(self, name: str, up_to_version: int) -> None:
        self._session.record("forget_scope_changes", name, up_to_version)

    def declare(self, declaration: Declaration, by: str) -> None:
        text = msgspec.json.encode(declaration).decode()
        self._session.record("save_declaration", text, by, self._session.now_ms)

    def stamp(self, stamp: str, queue_ids: Sequence[QueueId]) -> None:
        self._session.record("stamp_admission", stamp)
        for queue_id in queue_ids:
            self._session.record("stamp_queue", queue_id, stamp)


@lru_cache(maxsize=64)
def declaration_of(text: str | None) -> Declaration:
    return NO_ADMISSION.declaration if text is None else msgspec.json.decode(text, type=Declaration)


def _state(row: Row) -> ScopeState:
    _, scope_id, name, granted, dispatched, costs, cool_until_ms, cool_given, ended = row
    return ScopeState(
        scope_id,
        name,
        granted,
        int(ended),
        windows.read(dispatched),
        windows.read(costs),
        cool_until_ms,
        cool_given,
    )


def _conflict_of(text: str | None) -> RateConflict | None:
    return None if text is None else msgspec.json.decode(text, type=RateConflict)


def queue_of(row: Row, admission: Admission, now_ms: int) -> Queue:
    _, queue_id, namespace, name, kind, paused, policy, micro, worker_id, at_ms, paid, turn = row[:12]
    dispatched, _, until_ms, burst_ms, conflict, fair = row[12:18]
    conveyed = None
    if micro is not None:
        conveyed = WorkerRate(micro, worker_id, at_ms, until_ms, burst_ms, _conflict_of(conflict))
    settings = policy_of(policy)
    limits: QueueLimits = admission.of(namespace, name, kind, settings, now_ms)
    return Queue(
        queue_id,
        namespace,
        name,
        TaskKind(kind),
        paused,
        settings,
        conveyed,
        paid,
        turn,
        fair,
        windows.read(dispatched) if dispatched else windows.NOTHING,
        limits,
        now_ms,
    )
