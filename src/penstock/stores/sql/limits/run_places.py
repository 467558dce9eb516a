"""Caps on runs in SQL: the policies of their scopes, who holds a place, and who waits in line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.core.limits.admission import ScopeRow
from penstock.core.limits.policies import Policy
from penstock.core.limits.run_caps import PREFIX, namespace_name
from penstock.core.model import Run, RunId
from penstock.ports.tables.run_places import RunPlace
from penstock.ports.tables.visibility import PageStart
from penstock.stores.sql.matching.queue_limits import policy_of
from penstock.stores.sql.session import Repository, Row


class SqlRunPlaces(Repository):
    async def policies(self, names: Sequence[str]) -> Mapping[str, Policy]:
        answers = await self._session.fetch_each("run_policy", ((name,) for name in names))
        return {name: policy_of(rows[0][2]) for name, rows in zip(names, answers, strict=True) if rows}

    async def rows_of(self, namespace: str) -> Sequence[ScopeRow]:
        name = namespace_name(namespace)
        whole = await self._session.fetch("run_policies_of", name, f"{name}!")
        parts = await self._session.fetch("run_policies_of", f"{name}/", f"{name}0")
        return [ScopeRow(row[1], row[2], policy_of(row[3])) for row in (*whole, *parts)]

    async def next_namespace(self, after: str) -> str | None:
        rows = await self._session.fetch("next_capped_namespace", namespace_name(after))
        return str(rows[0][1]).removeprefix(PREFIX) if rows else None

    async def hold(self, scope_ids: Sequence[int]) -> None:
        await self._session.fetch_each("hold_scope", ((scope_id,) for scope_id in sorted(scope_ids)))

    async def lines(self, scope_ids: Sequence[int]) -> Sequence[bool]:
        answers = await self._session.fetch_each("has_line", ((scope_id,) for scope_id in scope_ids))
        return [bool(rows[0][1]) for rows in answers]

    async def line(self, scope_id: int, limit: int) -> Sequence[RunPlace]:
        return [_place(row) for row in await self._session.fetch("run_line", scope_id, limit)]

    async def holders(self, scope_id: int, limit: int) -> Sequence[RunPlace]:
        return [_place(row) for row in await self._session.fetch("run_holders", scope_id, limit)]

    async def counts(self, scope_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
        answers = await self._session.fetch_each("count_places", ((scope_id,) for scope_id in scope_ids))
        return [(int(rows[0][1]), int(rows[0][2])) for rows in answers]

    async def ahead(self, place: RunPlace) -> Sequence[tuple[int, int]]:
        rows = await self._session.fetch("count_ahead", place.scope_id, place.level, place.seq)
        return [(row[1], row[2]) for row in rows]

    async def waiting(self, run_id: RunId) -> RunPlace | None:
        rows = await self._session.fetch("waiting_place", run_id)
        return _place(rows[0]) if rows else None

    async def next_line(self, after: int) -> int | None:
        found = (await self._session.fetch("next_line", after))[0][1]
        return None if found is None else int(found)

    async def standing_lines(self, namespace: str) -> Sequence[int]:
        name = namespace_name(namespace)
        whole = await self._session.fetch("standing_lines", name, f"{name}!")
        parts = await self._session.fetch("standing_lines", f"{name}/", f"{name}0")
        return [int(row[1]) for row in (*whole, *parts)]

    async def open_runs(self, namespace: str, after: PageStart | None, limit: int) -> Sequence[PageStart]:
        start = (after.started_at_ms, after.run_id) if after else (-1, "")
        rows = await self._session.fetch("open_runs", namespace, *start, limit)
        return [PageStart(row[2], RunId(row[1])) for row in rows]

    def wait(self, run: Run, scope_id: int, ready_at_ms: int) -> None:
        self._session.record("insert_place", run.run_id, scope_id, 1, run.level, ready_at_ms)

    def take(self, run: Run, scope_ids: Sequence[int]) -> None:
        for scope_id in scope_ids:
            self._session.record("insert_place", run.run_id, scope_id, 0, run.level, run.started_at_ms)

    def move(self, run_id: RunId, scope_id: int) -> None:
        self._session.record("move_place", run_id, scope_id)

    def postpone(self, run_id: RunId, ready_at_ms: int) -> None:
        self._session.record("postpone_place", run_id, ready_at_ms)

    def drop(self, run_id: RunId) -> None:
        self._session.record("drop_places", run_id)

    def hand_on(self, run_id: RunId, successor: RunId) -> None:
        self._session.record("hand_on_places", run_id, successor)

    def end(self, scope_ids: Sequence[int]) -> None:
        for scope_id in scope_ids:
            self._session.record("end_in_scope", scope_id, self._session.shard)


def _place(row: Row) -> RunPlace:
    run_id, scope_id, _, level, ready_at_ms, seq = row[1:]
    return RunPlace(RunId(run_id), scope_id, level, ready_at_ms, seq)
