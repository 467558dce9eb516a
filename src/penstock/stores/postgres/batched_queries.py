"""How operations talk to PostgreSQL: equal questions of several travel as one, and what its errors mean."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import asyncpg

from penstock.stores.group_commit import QueuedOperation
from penstock.stores.sql import statement_merger
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.session import Fetch, Row, Rows
from penstock.stores.sql.statement_merger import HotBatches

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
CHANNEL = "penstock_wakeups"

Waiting: TypeAlias = tuple[int, Coroutine[Any, Any, Any], tuple[Fetch, ...]]
"""An operation that waits for answers: its place in the group, itself, and what it asked."""


def advance(
    jobs: Sequence[QueuedOperation],
    index: int,
    coroutine: Coroutine[Any, Any, Any],
    answers: Sequence[Rows] | None,
    waiting: list[Waiting],
) -> None:
    """Let one operation go on to its next question, its result or its refusal."""
    try:
        fetches = coroutine.send(answers)
    except StopIteration as end:
        jobs[index].result = end.value
    except Exception as error:
        jobs[index].error = error
    else:
        waiting.append((index, coroutine, expect(fetches)))


def expect(fetches: Any) -> tuple[Fetch, ...]:
    if not isinstance(fetches, tuple):
        raise RuntimeError(f"an operation awaited {fetches!r}; it may await only the store")
    return fetches


FEW = 3
"""Questions of so many operations at most travel with others: lists of rows take longer to read than rows do."""


class QueryRunner(Protocol):
    """Whoever puts questions to the database: inside a transaction, or without one."""

    habits: HotBatches

    async def fetch(self, sql: str, *values: Any, holds: bool = False) -> Rows: ...


async def answer_all(asking: QueryRunner, fetches: Sequence[Fetch]) -> list[Rows]:
    """Ask each distinct statement once, plain questions together, and hand each asker its own rows.

    Statements that lock or change something go first, so that what is asked beside them is not older.
    """
    places: dict[Statement, list[int]] = {}
    for place, fetch in enumerate(fetches):
        places.setdefault(fetch.statement, []).append(place)
    answers: list[Rows] = [()] * len(fetches)
    plain = _to_be_asked_together(asking, places)
    for statement in sorted(places, key=lambda each: (not each.holds, each.rank)):
        askers = places[statement]
        if statement in plain:
            continue
        if statement.alone:
            for place in askers:
                answers[place] = await asking.fetch(
                    statement.sql, *fetches[place].values, holds=statement.holds
                )
            continue
        values = statement_merger.parameters_for(statement, [fetches[place].values for place in askers])
        _share(answers, statement, askers, await asking.fetch(statement.sql, *values, holds=statement.holds))
    if plain:
        values = statement_merger.values_of(
            (each, [fetches[place].values for place in places[each]]) for each in plain
        )
        [found] = await asking.fetch(statement_merger.merge_queries(plain), *values)
        for statement, rows in zip(plain, found, strict=True):
            _share(answers, statement, places[statement], rows)
    return answers


def _to_be_asked_together(
    asking: QueryRunner, places: Mapping[Statement, Sequence[int]]
) -> tuple[Statement, ...]:
    """Plain questions of few, if there are several and they come together often."""
    if len(places) == 1:
        return ()
    plain = [each for each in places if not (each.holds or each.alone) and len(places[each]) <= FEW]
    together = tuple(sorted(plain, key=lambda each: each.rank))
    return together if len(together) > 1 and asking.habits.is_hot(together) else ()


def _share(answers: list[Rows], statement: Statement, askers: Sequence[int], rows: Rows) -> None:
    """Give each asker its own rows."""
    if not statement.answers:
        return
    if len(askers) == 1:
        answers[askers[0]] = rows
        return
    shares: list[list[Row]] = [[] for _ in askers]
    for row in rows:
        shares[row[0] - 1].append(row)
    for place, share in zip(askers, shares, strict=True):
        answers[place] = share
