"""How many statements each step of a task's life takes: no more than today, and no more when more tasks wait.

A ceiling that is met by a better design is lowered; one that must rise has a reason that is worth a sentence in
`docs/decisions/`. On SQLite every row that is written counts; PostgreSQL writes rows of one kind with one statement.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.core.history.commands import CompleteWorkflow, ScheduleActivity
from penstock.core.model import Task, TaskKind
from penstock.stores.postgres.database_clock import NOW_MS
from penstock.stores.postgres.transactions import BEGIN, BEGIN_SNAPSHOT, COMMIT, END
from penstock.stores.sql.catalogue import Dialect, catalogue, reading_catalogue
from tests.speed.engine_work import NOTHING, TYPE, EngineWork, engine_work
from tests.speed.statement_log import Seen, StatementLog, described, log_postgres, log_sqlite, transactions

TIMES = 3
POSTGRES = Dialect.POSTGRES
MANY = 50
CROWD = 1_000
CEILINGS = {
    "sqlite": {
        "start a task": 11,
        "claim one task": 17,
        "complete a task": 8,
        f"start {MANY} tasks at once": 305,
        f"claim {MANY} tasks": 115,
        f"complete {MANY} tasks at once": 253,
        "start a workflow": 10,
        "decide to run an activity": 10,
        "complete the activity of a workflow": 10,
        "decide to complete": 6,
    },
    "postgres": {
        "start a task": 2,
        "claim one task": 10,
        "complete a task": 4,
        f"start {MANY} tasks at once": 4,
        f"claim {MANY} tasks": 11,
        f"complete {MANY} tasks at once": 8,
        "start a workflow": 3,
        "decide to run an activity": 4,
        "complete the activity of a workflow": 6,
        "decide to complete": 4,
    },
}
"""As it was measured; those that are sent at once go in two groups: the first, and the rest. On PostgreSQL journeys are
counted: BEGIN and COMMIT travel with other statements."""


def allowed(store: str, step: str) -> int:
    """One or two more are not yet a collapse, nor is one group more."""
    most = CEILINGS[store][step]
    return most + (most // 2 if step.endswith("at once") else 2)


@dataclass(frozen=True)
class Counted:
    """An engine at work on one store, and what is heard of its statements."""

    store: str
    work: EngineWork
    log: StatementLog

    async def fewest(self, step: Callable[[], Awaitable[object]]) -> Seen:
        return await self.log.fewest(TIMES, step)

    def check(self, step: str, statements: Seen) -> None:
        ceiling = allowed(self.store, step)
        assert len(statements) <= ceiling, (
            f"{self.store}: to {step} takes {len(statements)} statements, and at most {ceiling} are allowed:\n"
            f"{described(statements)}"
        )


@pytest.fixture(scope="module")
async def counted(address: Path | str) -> AsyncIterator[Counted]:
    """After some tasks and workflows, so that what is learned once is known."""
    log, on_sqlite = StatementLog(), isinstance(address, Path)
    with pytest.MonkeyPatch.context() as patch:
        (log_sqlite if on_sqlite else log_postgres)(log, patch)
        async with engine_work(address) as work:
            await work.tasks(10, 2)
            for _ in range(2):
                await work.workflow()
            yield Counted("sqlite" if on_sqlite else "postgres", work, log)


async def test_a_task_is_started_claimed_and_completed_with_few_statements(counted: Counted):
    work = counted.work
    counted.check("start a task", await counted.fewest(work.start_task))
    await work.start_tasks(2 * TIMES)
    taken: list[Task] = []

    async def claim() -> None:
        taken.extend(await work.claim(1))

    counted.check("claim one task", await counted.fewest(claim))
    counted.check("complete a task", await counted.fewest(lambda: work.complete(taken.pop())))
    await work.empty()


async def test_many_tasks_at_once_take_few_statements_more(counted: Counted):
    work = counted.work
    taken: list[list[Task]] = []

    async def claim() -> None:
        taken.append(await work.claim(MANY))
        assert len(taken[-1]) == MANY

    counted.check(f"start {MANY} tasks at once", await counted.fewest(lambda: work.start_tasks(MANY)))
    counted.check(f"claim {MANY} tasks", await counted.fewest(claim))
    ended = await counted.fewest(lambda: work.complete_all(taken.pop()))
    counted.check(f"complete {MANY} tasks at once", ended)


async def test_every_step_of_a_workflow_takes_few_statements(counted: Counted):
    work = counted.work
    for _ in range(TIMES):
        await work.start_workflow()
    counted.check("start a workflow", await counted.fewest(work.start_workflow))
    first = [(await work.claim(1, TaskKind.WORKFLOW))[0] for _ in range(2 * TIMES)]
    activity = ScheduleActivity(TYPE, None, NOTHING)
    scheduled = await counted.fewest(lambda: work.decide(first.pop(), activity))
    counted.check("decide to run an activity", scheduled)
    running = [(await work.claim(1))[0] for _ in range(TIMES)]
    completed = await counted.fewest(lambda: work.complete(running.pop()))
    counted.check("complete the activity of a workflow", completed)
    last = [(await work.claim(1, TaskKind.WORKFLOW))[0] for _ in range(TIMES)]
    closed = await counted.fewest(lambda: work.decide(last.pop(), CompleteWorkflow(NOTHING)))
    counted.check("decide to complete", closed)
    for task in first:
        await work.decide(task, CompleteWorkflow(NOTHING))


async def test_a_claim_takes_as_many_statements_however_many_tasks_wait(counted: Counted):
    work = counted.work

    async def claim() -> None:
        await work.complete_all(await work.claim(MANY))

    await work.start_tasks(TIMES * MANY)
    few = await counted.fewest(claim)
    await work.start_tasks(CROWD)
    many = await counted.fewest(claim)
    if counted.store == "sqlite":
        await check_instructions(counted)
    await work.empty()
    assert len(many) <= len(few) + 2, (
        f"beside {CROWD} tasks:\n{described(many)}\nbeside none:\n{described(few)}"
    )


async def test_what_is_asked_for_at_once_shares_transactions(counted: Counted):
    work = counted.work
    one = transactions(await counted.fewest(work.start_task))
    many = transactions(await counted.fewest(lambda: work.start_tasks(MANY)))
    await work.empty()
    assert one == 1
    assert many <= MANY / 4, f"{MANY} starts at once took {many} transactions"


async def check_instructions(counted: Counted) -> None:
    """Nor do the statements walk past those that wait: SQLite counts its steps, and one task takes few of them."""
    work, log = counted.work, counted.log

    async def one() -> None:
        await work.complete_all(await work.claim(1))

    beside = await log.fewest_instructions(TIMES, one)
    await work.empty()
    await work.start_tasks(TIMES)
    alone = await log.fewest_instructions(TIMES, one)
    assert beside <= 1.5 * alone, f"{beside} instructions of SQLite beside {CROWD} tasks, {alone} beside none"


@pytest.mark.parametrize("address", ["postgres"], indirect=True)
async def test_nothing_is_sent_on_the_way_that_the_planner_was_not_asked_about(counted: Counted):
    """`tests/stores/test_query_plans.py` has every statement of the catalogue planned."""
    async with counted.log.during() as sent:
        await counted.work.tasks(3, 2)
        await counted.work.workflow()
    known = {
        unnumbered(each.sql)
        for each in (*catalogue(POSTGRES).values(), *reading_catalogue(POSTGRES).values())
    }
    others = {left_of(sql, known) for sql in sent if sql not in (BEGIN, COMMIT, BEGIN_SNAPSHOT, END, NOW_MS)}
    assert {sql for sql in others if sql and not sql.startswith("SELECT pg_notify(")} == set()


def unnumbered(sql: str) -> str:
    """Parts of a merged statement have other numbers for what they take."""
    return re.sub(r"\$\d+", "$", sql)


def left_of(sql: str, known: set[str]) -> str:
    """What is left of a text without the statements of the catalogue, and the words that make one of several."""
    text = unnumbered(sql)
    if text in known:
        return ""
    for each in sorted(known, key=len, reverse=True):
        text = text.replace(f"AS ({each})", "").replace(f"ARRAY(SELECT a_ FROM ({each}) a_)", "")
    return re.sub(r"^(?:WITH w\d+ (?:, w\d+ )*\s*(?:SELECT 1$)?|SELECT (?:, )*$)", "", text)
