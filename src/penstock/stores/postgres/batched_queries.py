"""Sends the fetches of many operations in as few statements as possible, and distributes the rows."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
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
"""An operation that waits for rows: its place in the group, its coroutine, and its fetches."""

_Part: TypeAlias = tuple[Statement, Sequence[int]]
"""A statement of a merged text, and the places of the fetches that it answers."""


def advance(
    jobs: Sequence[QueuedOperation],
    index: int,
    coroutine: Coroutine[Any, Any, Any],
    answers: Sequence[Rows] | None,
    waiting: list[Waiting],
) -> None:
    """Advance one operation to its next fetches, its result or its error."""
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


PARTS_MAX = 60
"""Most parts of a merged text: preparing it must not cost more than the round trips that it saves."""
FEW = 3
"""Fetches of at most this many operations are merged with others: arrays of rows are slower to decode than rows."""


class QueryRunner(Protocol):
    """Executes fetches, inside a transaction or without one."""

    hot_batches: HotBatches
    merges_always: bool
    """Whether plain reads are merged however rarely their combination occurs: where round trips cost most."""

    async def fetch(self, sql: str, *values: Any, needs_transaction: bool = False) -> Rows: ...


async def answer_all(runner: QueryRunner, fetches: Sequence[Fetch]) -> list[Rows]:
    """Execute each distinct statement once, plain reads merged into one; returns the rows of each fetch.

    Statements that lock or change rows go first, so that what is read beside them is not older.
    """
    places: dict[Statement, list[int]] = {}
    for place, fetch in enumerate(fetches):
        places.setdefault(fetch.statement, []).append(place)
    answers: list[Rows] = [()] * len(fetches)
    parts = _mergeable_reads(runner, places)
    merged_reads = {statement for statement, _ in parts}
    for statement in sorted(places, key=lambda each: (not each.needs_transaction, each.rank)):
        if statement not in merged_reads:
            await _answer_one(runner, statement, fetches, places[statement], answers)
    for first in range(0, len(parts), PARTS_MAX):
        await _answer_together(runner, fetches, parts[first : first + PARTS_MAX], answers)
    return answers


async def _answer_together(
    runner: QueryRunner, fetches: Sequence[Fetch], parts: Sequence[_Part], answers: list[Rows]
) -> None:
    """Execute several plain reads as one statement."""
    values = [
        value
        for statement, mine in parts
        for value in _parameters(statement, [fetches[place].values for place in mine])
    ]
    text = statement_merger.merge_queries(tuple(statement for statement, _ in parts))
    [found] = await runner.fetch(text, *values)
    for (statement, mine), rows in zip(parts, found, strict=True):
        if statement.unmerged:
            answers[mine[0]] = rows
        else:
            _share(answers, statement, mine, rows)


async def _answer_one(
    runner: QueryRunner,
    statement: Statement,
    fetches: Sequence[Fetch],
    places: Sequence[int],
    answers: list[Rows],
) -> None:
    """Execute one statement for all fetches of it."""
    rows = [fetches[place].values for place in places]
    execute = partial(runner.fetch, statement.sql, needs_transaction=statement.needs_transaction)
    if statement.unmerged:
        for place, values in zip(places, rows, strict=True):
            answers[place] = await execute(*values)
    else:
        _share(answers, statement, places, await execute(*statement_merger.parameters_for(statement, rows)))


def _mergeable_reads(runner: QueryRunner, places: Mapping[Statement, Sequence[int]]) -> Sequence[_Part]:
    """Plain reads of few operations, if there are several and the combination is hot."""
    if runner.merges_always:
        return _all_reads(places)
    if len(places) == 1:
        return ()
    merged_reads = [
        each for each in places if not (each.needs_transaction or each.unmerged) and len(places[each]) <= FEW
    ]
    together = tuple(sorted(merged_reads, key=lambda each: each.rank))
    if len(together) < 2 or not runner.hot_batches.is_hot(together):
        return ()
    return [(each, places[each]) for each in together]


def _all_reads(places: Mapping[Statement, Sequence[int]]) -> Sequence[_Part]:
    """All plain reads; one that is sent once per operation is a part for each fetch."""
    parts: list[_Part] = []
    for statement in sorted(places, key=lambda each: each.rank):
        if statement.unmerged and not statement.needs_transaction:
            parts += [(statement, (place,)) for place in places[statement]]
        elif not statement.needs_transaction:
            parts.append((statement, places[statement]))
    return parts if len(parts) > 1 else ()


def _parameters(statement: Statement, rows: list[tuple[Any, ...]]) -> Sequence[Any]:
    return rows[0] if statement.unmerged else statement_merger.parameters_for(statement, rows)


def _share(answers: list[Rows], statement: Statement, fetchers: Sequence[int], rows: Rows) -> None:
    """Give each fetch its own rows."""
    if not statement.returns_rows:
        return
    if len(fetchers) == 1:
        answers[fetchers[0]] = rows
        return
    shares: list[list[Row]] = [[] for _ in fetchers]
    for row in rows:
        shares[row[0] - 1].append(row)
    for place, share in zip(fetchers, shares, strict=True):
        answers[place] = share
