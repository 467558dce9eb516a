"""Admission scopes in SQL: the limits in force, and the leases and costs that each scope counts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.core.limits import windows
from penstock.core.limits.admission import Admission, Declaration
from penstock.core.limits.policies import Policy, PolicyChange
from penstock.core.model import Queue, QueueId, Task
from penstock.core.scheduling.gates import ScopeState
from penstock.stores.sql.matching.queue_limits import read_admission
from penstock.stores.sql.matching.queues import SqlQueues
from penstock.stores.sql.session import Repository, Row
from penstock.stores.sql.tasks.tasks import task_of


class SqlScopes(Repository):
    async def admission(self) -> Admission:
        return (await read_admission(self._session))[1]

    async def lock_admission(self) -> Admission:
        await self._session.fetch("lock_admission")
        return await self.admission()

    async def lock_queues(self, namespace: str | None) -> Sequence[Queue]:
        """Lock queues by the same statement as changes of a single queue, so that both never share a group."""
        if namespace is None:
            found = await self._session.fetch("all_queue_ids")
        else:
            found = await self._session.fetch("queue_ids_of", namespace)
        answers = await self._session.fetch_each("lock_queue", ((row[1],) for row in found))
        return await SqlQueues(self._session).decoded([row for rows in answers for row in rows])

    async def names(self, after: str, limit: int) -> Sequence[str]:
        return [row[1] for row in await self._session.fetch("scope_names", after, limit)]

    async def ids(self, names: Sequence[str]) -> Sequence[int]:
        ids = {
            name: self._session.immutable.scopes[name]
            for name in names
            if name in self._session.immutable.scopes
        }
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

    async def holders(self, scope_id: int, queue_ids: Sequence[QueueId], limit: int) -> Sequence[Task]:
        ids = msgspec.json.encode(queue_ids).decode()
        rows = await self._session.fetch("leases_in_scope", ids, str(scope_id), limit)
        return [task_of(row) for row in rows]

    async def changes(self, name: str, limit: int) -> Sequence[PolicyChange]:
        rows = await self._session.fetch("scope_changes", name, limit)
        return [PolicyChange(row[1], row[2], row[3], row[4], None, row[5], row[6], row[7]) for row in rows]

    async def newest_changes(self, before_ms: int, limit: int) -> Sequence[tuple[str, PolicyChange]]:
        rows = await self._session.fetch("newest_scope_changes", before_ms, limit)
        return [
            (row[1], PolicyChange(row[2], row[3], row[4], row[5], None, row[6], row[7], row[8]))
            for row in rows
        ]

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
