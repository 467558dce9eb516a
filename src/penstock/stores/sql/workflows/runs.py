"""Runs and instances in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple

from penstock.core.model import Instance, Run, RunHost, RunId, RunStatus
from penstock.core.run_codec import (
    decode_block,
    decode_lineage,
    decode_waits,
    encode_block,
    encode_lineage,
    encode_waits,
)
from penstock.errors import Reason, Unavailable
from penstock.ports.tables.runs import RunFilter
from penstock.ports.tables.visibility import PageStart
from penstock.stores import mutable_columns
from penstock.stores.sql.operations.external_payloads import record_uses
from penstock.stores.sql.row_cache import CachedTable, TableCache, length_of
from penstock.stores.sql.session import CachedRepository, Row
from penstock.stores.sql.workflows.run_attributes import record_entries, replace_entries

_SAVED = ("run_id", *mutable_columns.RUNS)
_SELDOM = (
    "closed_reason",
    "output",
    "closed_at_ms",
    "deadline_at_ms",
    "task_failures",
    "task_error",
    "blocked",
    "archived_at_ms",
)
"""The columns that rarely change while a run is open; they include all indexed columns that a save writes."""
_PROGRESS = tuple(each for each in _SAVED if each not in _SELDOM)
_seldom = attrgetter(*_SELDOM)
_HOSTS = {each.value: each for each in RunHost}
_STATUSES = {each.value: each for each in RunStatus}


_RESERVE_TRIES = 10
_INSTANCE = 4
"""The number of columns of an instance; in a fetched row they follow the row number."""


_COLUMNS = Run.__struct_fields__
_HOST, _STATUS = _COLUMNS.index("host"), _COLUMNS.index("status")
_CODECS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "lineage": (encode_lineage, decode_lineage),
    "waits": (encode_waits, decode_waits),
    "blocked": (encode_block, decode_block),
}
"""The columns that hold a structured field as text."""
_DECODERS = [(_COLUMNS.index(name), decode) for name, (_, decode) in _CODECS.items()]


def run_from(row: Row) -> Run:
    values: list[Any]
    _, *values = row
    values[_HOST] = _HOSTS[values[_HOST]]
    values[_STATUS] = _STATUSES[values[_STATUS]]
    for index, decode in _DECODERS:
        values[index] = decode(values[index])
    return Run(*values)


def _encoder(columns: Sequence[str]) -> Callable[[Run], tuple[Any, ...]]:
    """A function from a run to the values of these columns."""
    values_of = attrgetter(*columns)
    encoders = [(columns.index(name), encode) for name, (encode, _) in _CODECS.items() if name in columns]

    def encoded(run: Run) -> tuple[Any, ...]:
        values = list(values_of(run))
        for index, encode in encoders:
            values[index] = encode(values[index])
        return tuple(values)

    return encoded


row_values, _saved, _progress = map(_encoder, (_COLUMNS, _SAVED, _PROGRESS))
_texts_size = length_of("input", "output", "memo", "search_attributes", "task_error")
_WAIT_SIZE = 64
"""About as many characters describe one step that the code waits for."""


def _size(run: Run) -> int:
    waits = run.waits
    open_steps = len(waits.groups) + sum(len(each.members) for each in waits.selections)
    open_steps += len(waits.external) + len(waits.ending)
    block = 0 if run.blocked is None else len(run.blocked.message) + len(run.blocked.yielded or "")
    return _texts_size(run) + open_steps * _WAIT_SIZE + block


RUNS = CachedTable(
    "runs",
    "get_run",
    _COLUMNS,
    _SAVED,
    run_from,
    size=_size,
    is_finished=lambda run: run.status.is_terminal,
    written_by={
        "insert_run": TableCache.add,
        "save_run": TableCache.update,
        "save_run_progress": TableCache.update,
    },
)


class SqlRuns(CachedRepository[Run]):
    _table = RUNS

    async def reserve(self, instance: Instance) -> Instance:
        for _ in range(_RESERVE_TRIES):
            rows = await self._session.fetch(
                "reserve_instance", *astuple(instance)
            ) or await self._session.fetch("get_instance", instance.namespace, instance.workflow_id)
            if rows:  # else another server deleted the instance between the two statements
                return Instance(*rows[0][1:])
        raise _contended(instance)

    async def reserve_all(self, instances: Sequence[Instance]) -> Sequence[Instance]:
        if not instances:
            return ()
        fetch = self._session.fetch_each
        made = await fetch("reserve_instance", map(astuple, instances))
        late = [each for each, rows in zip(instances, made, strict=True) if not rows]
        others = iter(await fetch("get_instance", ((each.namespace, each.workflow_id) for each in late)))
        found = [rows or next(others) for rows in made]
        return [
            Instance(*rows[0][1:]) if rows else await self.reserve(instance)
            for instance, rows in zip(instances, found, strict=True)
        ]

    async def instance(self, namespace: str, workflow_id: str) -> Instance | None:
        rows = await self._session.fetch("get_instance", namespace, workflow_id)
        return Instance(*rows[0][1:]) if rows else None

    async def named(
        self, namespace: str, workflow_id: str, run_id: RunId | None
    ) -> tuple[Instance, Run | None] | None:
        rows = await self._session.fetch("get_named_run", namespace, workflow_id, run_id)
        if not rows:
            return None
        row = rows[0]
        run = None if row[_INSTANCE + 1] is None else run_from(row[_INSTANCE:])
        return Instance(*row[1 : _INSTANCE + 1]), run

    async def lock(self, run_id: RunId) -> Run | None:
        return await self._one("lock_run", run_id)

    async def of_instance(
        self, namespace: str, workflow_id: str, after: PageStart | None, limit: int
    ) -> Sequence[Run]:
        place = (after.started_at_ms, after.run_id) if after else (-1, "")
        rows = await self._session.fetch("runs_of_instance", namespace, workflow_id, *place, limit)
        return [run_from(row) for row in rows]

    async def page(self, narrow: RunFilter, after: PageStart | None, limit: int) -> Sequence[Run]:
        rows = await self._session.fetch(
            "page_runs",
            narrow.namespace,
            narrow.host,
            narrow.type,
            narrow.bucket,
            narrow.text,
            after.started_at_ms if after else None,
            after.run_id if after else None,
            limit,
        )
        return [run_from(row) for row in rows]

    async def overdue(self, now_ms: int, limit: int) -> Sequence[RunId]:
        return [RunId(row[1]) for row in await self._session.fetch("overdue_runs", now_ms, limit)]

    async def blocked(self, namespace: str, task_queue: str, limit: int) -> Sequence[RunId]:
        rows = await self._session.fetch("blocked_runs", namespace, task_queue, limit)
        return [RunId(row[1]) for row in rows]

    def insert(self, run: Run) -> None:
        record_uses(self._session, run.run_id, run.input)
        self._session.save("insert_run", run, row_values(run))
        record_entries(self._session, run)

    def save(self, run: Run) -> None:
        cached = self._session.row_cache.tables.get(RUNS)
        before = None if cached is None else cached.get(run.run_id)
        if before is not None and _seldom(before) == _seldom(run):
            self._session.save("save_run_progress", run, _progress(run))
        else:
            self._session.save("save_run", run, _saved(run))

    def save_attributes(self, run: Run) -> None:
        self._session.record("save_run_attributes", run.run_id, run.memo, run.search_attributes)
        replace_entries(self._session, run)

    def replace_input(self, run: Run) -> None:
        record_uses(self._session, run.run_id, run.input)
        deadlines = run.execution_deadline_at_ms, run.run_deadline_at_ms
        self._session.record("replace_run_input", run.run_id, run.input, *deadlines)

    def release(self, instance: Instance) -> None:
        self._session.record("release_instance", instance.namespace, instance.workflow_id, instance.run_id)

    def succeed(self, instance: Instance) -> None:
        self._session.record(
            "succeed_instance", instance.namespace, instance.workflow_id, instance.run_id, instance.run_count
        )


def _contended(instance: Instance) -> Unavailable:
    return Unavailable(
        Reason.STORE_UNAVAILABLE,
        f"The workflow id {instance.workflow_id!r} was deleted and reused too often in the meantime. Try again.",
        outcome="none",
        retryable=True,
    )
