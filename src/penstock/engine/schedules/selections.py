"""Schedules that a query finds: a page of them, and pausing or resuming all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from penstock.core.schedules.record import ScheduleRecord, ScheduleStatus
from penstock.core.visibility.binder import bind
from penstock.core.visibility.filters import EVERYTHING, Filter
from penstock.core.visibility.query_errors import QueryProblem
from penstock.core.visibility.schedule_entries import SCHEDULE_FIELDS, schedule_matches
from penstock.core.visibility.syntax import Query
from penstock.engine.context import EngineContext
from penstock.engine.schedules import actions, lifecycle
from penstock.engine.schedules.zones import spec_of
from penstock.engine.visibility.run_search import invalid_query
from penstock.errors import NotFound, PenstockError
from penstock.ports.store import Tx
from penstock.ports.tables.schedules import ScheduleFilter
from penstock.ports.tables.visibility import PageStart

PORTION: Final = 500
"""Schedules that one read transaction looks at."""
LOOKS_MAX: Final = 10_000
"""Schedules that one page looks at: with a query that finds few, a page may be short and yet not the last."""
SAMPLE: Final = 10
AT_ONCE: Final = 50
"""Schedules that are changed together: enough to share commits, few enough not to delay others."""


class ScheduleCriteria(Struct, frozen=True):
    """Which schedules: all that match the filter and the query."""

    narrow: ScheduleFilter
    query: Query | None = None


class ScheduleSelection(Struct, frozen=True):
    """Schedules that were found, newest first, and where to go on."""

    schedules: Sequence[ScheduleRecord]
    after: PageStart | None


class BulkChange(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"


class BulkFailure(Struct, frozen=True):
    """A schedule that could not be changed."""

    schedule_id: str
    error: PenstockError


class BulkOutcome(Struct, frozen=True):
    """What a bulk change did: schedules that were found, and of these, those that it changed."""

    matched: int
    acted: int
    failures: Sequence[BulkFailure]
    after: PageStart | None


class BulkPreview(Struct, frozen=True):
    """What a bulk change would do: how many it would change, and the newest of them."""

    matched: int
    complete: bool
    """Whether all schedules were looked at."""
    sample: Sequence[ScheduleRecord]


async def select(
    ctx: EngineContext, wanted: ScheduleCriteria, before: PageStart | None, limit: int
) -> ScheduleSelection:
    """The next schedules that match, newest first. Raises `InvalidInput` for a query that does not bind."""
    found: list[ScheduleRecord] = []
    looked = 0
    while looked < LOOKS_MAX:
        portion, matching = await _portion(ctx, wanted, before, PORTION if wanted.query else limit + 1)
        looked += len(portion)
        for record in matching:
            if len(found) == limit:
                return ScheduleSelection(found, _place(found[-1]))
            found.append(record)
        if len(portion) < (PORTION if wanted.query else limit + 1):
            return ScheduleSelection(found, None)
        before = _place(portion[-1])
    return ScheduleSelection(found, before)


async def preview_change(ctx: EngineContext, wanted: ScheduleCriteria, change: BulkChange) -> BulkPreview:
    """Count what a bulk change would change, without changing it."""
    found = await select(ctx, _changeable(wanted, change), None, LOOKS_MAX)
    return BulkPreview(len(found.schedules), found.after is None, found.schedules[:SAMPLE])


async def change_all(
    ctx: EngineContext,
    wanted: ScheduleCriteria,
    change: BulkChange,
    note: str | None,
    before: PageStart | None,
    most: int,
) -> BulkOutcome:
    """Pause or resume up to `most` schedules, each in its own transaction. Repeating it finds only what is left."""
    found = await select(ctx, _changeable(wanted, change), before, most)
    acted, failures = 0, []
    for first in range(0, len(found.schedules), AT_ONCE):
        portion = found.schedules[first : first + AT_ONCE]
        for outcome in await asyncio.gather(*(_change(ctx, record, change, note) for record in portion)):
            if isinstance(outcome, BulkFailure):
                failures.append(outcome)
            else:
                acted += outcome
    return BulkOutcome(len(found.schedules), acted, failures, found.after)


async def _change(
    ctx: EngineContext, record: ScheduleRecord, change: BulkChange, note: str | None
) -> bool | BulkFailure:
    """Change one schedule; False if it was deleted in the meantime."""
    act = lifecycle.pause if change is BulkChange.PAUSE else lifecycle.resume
    try:
        await act(ctx, record.namespace, record.schedule_id, note)
    except NotFound:
        return False
    except PenstockError as error:
        return BulkFailure(record.schedule_id, error)
    return True


def _changeable(wanted: ScheduleCriteria, change: BulkChange) -> ScheduleCriteria:
    """Only schedules in the state from which the change leads away."""
    status = ScheduleStatus.ACTIVE if change is BulkChange.PAUSE else ScheduleStatus.PAUSED
    narrow = wanted.narrow
    return ScheduleCriteria(ScheduleFilter(narrow.namespace, status.value, narrow.action_type), wanted.query)


async def _portion(
    ctx: EngineContext, wanted: ScheduleCriteria, before: PageStart | None, limit: int
) -> tuple[Sequence[ScheduleRecord], Sequence[ScheduleRecord]]:
    """The next schedules, and those of them that match the query."""

    async def operation(tx: Tx) -> tuple[Sequence[ScheduleRecord], Sequence[ScheduleRecord]]:
        portion = await tx.schedules.page(wanted.narrow, before, limit)
        bound = EVERYTHING
        if wanted.query is not None:
            types = await tx.visibility.types(wanted.narrow.namespace)
            try:
                bound = bind(wanted.query, types, tx.now_ms, SCHEDULE_FIELDS)
            except QueryProblem as problem:
                raise invalid_query(problem) from None
        return portion, list(_matching(portion, bound))

    return await ctx.store.read(operation, long=wanted.query is not None)


def _matching(portion: Sequence[ScheduleRecord], wanted: Filter) -> Iterator[ScheduleRecord]:
    if wanted is EVERYTHING:
        yield from portion
        return
    for record in portion:
        queue = actions.decode(record.action).start.task_queue
        if schedule_matches(wanted, record, queue, spec_of(record).time_zone):
            yield record


def _place(record: ScheduleRecord) -> PageStart:
    return PageStart(record.created_at_ms, record.schedule_key)
