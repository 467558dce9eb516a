"""Child runs in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from penstock.core.model import ChildRun, ChildState, ClosePolicy, RunId
from penstock.stores.sql.session import Repository, Row


class SqlChildren(Repository):
    async def get(self, parent_run_id: RunId, step: int) -> ChildRun | None:
        rows = await self._session.fetch("get_child", parent_run_id, step)
        return _child(rows[0]) if rows else None

    async def open_of(self, parent_run_id: RunId) -> Sequence[ChildRun]:
        return [_child(row) for row in await self._session.fetch("open_children", parent_run_id)]

    async def all_of(self, parent_run_id: RunId) -> Sequence[ChildRun]:
        return [_child(row) for row in await self._session.fetch("all_children", parent_run_id)]

    def insert(self, child: ChildRun) -> None:
        self._session.record("insert_child", *astuple(child))

    def save(self, child: ChildRun) -> None:
        self._session.record("save_child", child.parent_run_id, child.step, child.state)


def _child(row: Row) -> ChildRun:
    return ChildRun(
        row[1],
        row[2],
        row[3],
        row[4],
        row[5],
        row[6],
        ClosePolicy(row[7]),
        row[8],
        ChildState(row[9]),
    )
