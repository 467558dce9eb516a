"""The journal in SQL: leases and the load, line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.core.model import Task, TaskId, TaskState
from penstock.core.operations import journal_lines
from penstock.stores.sql.session import Repository

_encode = msgspec.json.Encoder().encode


class SqlJournal(Repository):
    async def page(self, after: int, limit: int) -> Sequence[tuple[int, str]]:
        return [(row[1], row[2]) for row in await self._session.fetch("journal_page", after, limit)]

    async def any_before(self, at_ms: int) -> bool:
        return bool(await self._session.fetch("any_journal_before", at_ms))

    async def between(
        self, since_ms: int, until_ms: int, event: str, after: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        rows = await self._session.fetch(
            "journal_between", since_ms, until_ms, f'%"event":"{event}"%', after, limit
        )
        return [(row[1], row[2]) for row in rows]

    def append(self, line: Mapping[str, Any]) -> None:
        text = _encode(line).decode()
        self._session.record("append_journal", self._session.now_ms, text)

    def append_ready(self, task: Task, weight_milli: int | None, due_at_ms: int | None = None) -> None:
        """Write that a task waits, and after which end: that of its last attempt, or one of this operation."""
        session = self._session
        after = task.task_id if task.attempt else session.ended_task
        line = journal_lines.ready(
            task, session.now_ms, weight_milli=weight_milli, after=after, due_at_ms=due_at_ms
        )
        self.append(line)
        if after is None:
            place = len(session.writes[session.statements["append_journal"]]) - 1
            session.ready_lines = (*session.ready_lines, (place, line))

    def append_end(self, task: Task) -> None:
        """Write the end of a lease. Tasks that became ready earlier in the operation did so because of it.

        A task that ends because its run closes is not the cause of what follows if another one is.
        """
        session = self._session
        self.append(journal_lines.ended(task, session.now_ms))
        if session.ended_task is not None and task.state is TaskState.CANCELLED:
            return
        session.ended_task = task.task_id
        if session.ready_lines:
            self._name_cause(task.task_id)

    def _name_cause(self, task_id: TaskId) -> None:
        rows = self._session.writes[self._session.statements["append_journal"]]
        for place, line in self._session.ready_lines:
            text = _encode({**line, "after": task_id}).decode()
            rows[place] = (self._session.now_ms, text)
        self._session.ready_lines = ()

    def forget(self, before_ms: int) -> None:
        self._session.record("forget_journal", before_ms)
