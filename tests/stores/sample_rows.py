"""Databases with some thousand rows in every table, so that planners choose as in production."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import asyncpg

from tests.support.builders import NOW_MS

ROWS = 8_000
UNFILLED = frozenset({"admission", "migrations"})
"""Tables that have only a row or two."""
Value = Callable[[int], Any]


class Column(NamedTuple):
    name: str
    is_text: bool
    in_key: bool


def _some(every: int, value: Value) -> Value:
    """The value in every n-th row, None in the others."""
    return lambda i: value(i) if i % every == 0 else None


def _mostly(usual: str, *seldom: str) -> Value:
    """A value that three rows in four have; the others share the rest."""
    return lambda i: seldom[i // 4 % len(seldom)] if i % 4 == 0 else usual


def _leased(value: Value) -> Value:
    return lambda i: value(i) if _TASK_STATE(i) == "leased" else None


_TASK_STATES = ("done", "ready", "delayed", "leased")
_TASK_STATE: Value = lambda i: _TASK_STATES[i // 2 % 4]  # noqa: E731
_MOMENT: Value = lambda i: NOW_MS + i  # noqa: E731

BY_NAME: Mapping[str, Value] = {
    "namespace": lambda i: f"namespace-{i % 40}",
    "task_queue": lambda i: f"queue-{i % 700}",
    "queue_id": lambda i: i % 700,
    "level": lambda i: i % 10,
    "weight_milli": lambda i: 1000,
    "wanted_milli": lambda i: 1000,
    "override_milli": _some(4, lambda i: 1000),
}
"""Values by column name, in any table."""

BY_COLUMN: Mapping[str, Mapping[str, Value]] = {
    "clocks": {"queue_id": lambda i: i},
    "queues": {"name": lambda i: f"queue-{i}"},
    "runs": {
        "host": lambda i: "workflow",
        "workflow_type": lambda i: f"type-{i % 30}",
        "status": _mostly("completed", "running", "waiting", "failed"),
        "deadline_at_ms": _some(4, _MOMENT),
        "blocked": _some(50, lambda i: "{}"),
        "closed_at_ms": lambda i: NOW_MS + i if i % 4 else None,
        "archived_at_ms": _some(3, _MOMENT),
    },
    "events": {
        "run_id": lambda i: f"run_id-{i // 10}",
        "sequence": lambda i: i % 10 + 1,
        "type": lambda i: "WorkflowCompleted" if i % 10 == 9 else "ActivityScheduled",
    },
    "activities": {
        "closed_at_ms": lambda i: NOW_MS + i if i % 4 else None,
        "deadline_at_ms": _some(4, _MOMENT),
        "quarantined": lambda i: int(i % 20 == 0),
    },
    "timers": {"state": _mostly("fired", "open")},
    "children": {"parent_run_id": lambda i: f"run_id-{i // 5}", "state": _mostly("closed", "open")},
    "updates": {"run_id": lambda i: f"run_id-{i // 5}", "status": _mostly("completed", "accepted")},
    "requests": {"run_id": lambda i: f"run_id-{i // 5}"},
    "lanes": {
        "key": lambda i: f"key-{i}",
        "count": lambda i: int(i % 7 == 0),
        "state": lambda i: i // 7 % 5,
        "open_at_ms": _some(7, _MOMENT),
    },
    "keys": {"at_ms": _some(4, _MOMENT), "running": lambda i: int(i % 3 > 0), "reason": _some(20, str)},
    "tasks": {
        "state": _TASK_STATE,
        "kind": lambda i: ("workflow", "activity")[i % 2],
        "type": lambda i: f"type-{i % 30}",
        "route": lambda i: f"type-{i % 30}",
        "key": lambda i: f"key-{i % 100}",
        "lease_owner": _leased(lambda i: f"worker_id-{i % 50}"),
        "lease_token": _leased(lambda i: f"token-{i}"),
        "lease_expires_at_ms": _leased(_MOMENT),
        "counted": lambda i: 0,
        "sticky_worker_id": _some(30, lambda i: f"worker_id-{i % 50}"),
        "sticky_until_ms": _some(30, _MOMENT),
    },
    "query_tasks": {"state": _mostly("answered", "pending", "leased")},
    "cohorts": {"new_start_selected": lambda i: int(i % 20 == 0)},
    "run_places": {"scope_id": lambda i: i % 700, "waiting": lambda i: int(i % 4 == 0)},
    "scopes": {"policy": _some(4, lambda i: "{}")},
}
"""Values by table and column: as indexes and checks need them, in plausible proportions."""


def rows(table: str, columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """The rows of a table, without duplicate keys."""
    keys = [place for place, column in enumerate(columns) if column.in_key]
    values = [_value(table, column, alone=column.in_key and len(keys) == 1) for column in columns]
    made = [tuple(value(i) for value in values) for i in range(1, ROWS + 1)]
    return list({tuple(row[place] for place in keys) or row: row for row in made}.values())


def _value(table: str, column: Column, *, alone: bool) -> Value:
    """The values of a column; unique if it is the whole primary key."""
    name = column.name
    particular = BY_COLUMN.get(table, {}).get(name) or (None if alone else BY_NAME.get(name))
    if particular is not None:
        return particular
    if name.endswith("_at_ms"):
        return _MOMENT
    return (lambda i: f"{name}-{i}") if column.is_text else (lambda i: i)


def fill_sqlite(connection: sqlite3.Connection) -> None:
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        if table in UNFILLED or table.startswith("sqlite_"):
            continue
        described = connection.execute(f"PRAGMA table_info({table})").fetchall()
        columns = [Column(row[1], "TEXT" in row[2], row[5] > 0) for row in described]
        marks = ", ".join("?" for _ in columns)
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows(table, columns))
    connection.commit()


async def fill_postgres(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    tables: dict[str, list[Column]] = {}
    for table, *column in await connection.fetch(_COLUMNS):
        tables.setdefault(table, []).append(Column(*column))
    for table, columns in tables.items():
        if table not in UNFILLED:
            names = [column.name for column in columns]
            await connection.copy_records_to_table(table, records=rows(table, columns), columns=names)


_COLUMNS = """
SELECT c.relname, a.attname, a.atttypid = 'text'::regtype, a.attnum = ANY (coalesce(k.conkey, '{}'))
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' ORDER BY c.relname, a.attnum
"""
