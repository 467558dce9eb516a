"""A guard against collapse: what tasks cost, beside a piece of work whose cost is the machine's alone.

Both are CPU time of this process, so neighbours and disks hardly matter, and a slow machine makes both sides dearer.
The bounds are about three times what was measured: noise does not reach them, a loop in a loop does. They are no
benchmark; `python -m benchmarks` is.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.speed.edge_work import EdgeWork, edge_work
from tests.speed.engine_work import EngineWork, engine_work

TIMES = 3
TASKS, AT_ONCE, WORKFLOWS, ASKED = 200, 50, 30, 60
STANDARD_COMMITS, STANDARD_DOCUMENTS = 200, 4_000
DOCUMENT = {"id": "task-1", "queue": "orders", "payload": ["text"] * 10, "attempt": 1, "deadline": None}

TASK_MOST, WORKFLOW_MOST, EDGE_MOST = 60, 500, 115
"""They were 18 to 22, 160 to 195, and 36 to 40."""


def standard(folder: Path) -> float:
    """CPU seconds of some commits and some encoding: what this machine takes for work that never changes."""
    with contextlib.closing(sqlite3.connect(folder / "standard.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, name TEXT, body TEXT)")
        began = time.process_time()
        for number in range(STANDARD_COMMITS):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows (name, body) VALUES (?, ?)", (f"row {number}", "body" * 20))
            connection.execute("COMMIT")
        for _ in range(STANDARD_DOCUMENTS):
            json.loads(json.dumps(DOCUMENT))
        return time.process_time() - began


@pytest.fixture(scope="module")
async def work(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineWork]:
    """After some tasks and workflows, so that nothing is done for the first time."""
    async with engine_work(tmp_path_factory.mktemp("speed") / "penstock.db") as at_work:
        await at_work.tasks(AT_ONCE, AT_ONCE)
        await at_work.workflow()
        yield at_work


async def units(folder: Path, each: int, step: Callable[[], Awaitable[object]]) -> float:
    """What one of so many costs, in thousandths of the standard; the best of some tries on either side."""
    best, beside = float("inf"), float("inf")
    for _ in range(TIMES):
        beside = min(beside, standard(folder))
        began = time.process_time()
        await step()
        best = min(best, time.process_time() - began)
    return best / each / beside * 1000


async def test_a_standalone_task_does_not_cost_much_more_than_it_did(work: EngineWork, tmp_path: Path):
    cost = await units(tmp_path, TASKS, lambda: work.tasks(TASKS, AT_ONCE))
    assert cost <= TASK_MOST, (
        f"a task from start to end cost {cost:.1f} units, and at most {TASK_MOST} are allowed"
    )


async def test_a_workflow_of_one_activity_does_not_cost_much_more_than_it_did(
    work: EngineWork, tmp_path: Path
):
    async def some() -> None:
        for _ in range(WORKFLOWS):
            await work.workflow()

    cost = await units(tmp_path, WORKFLOWS, some)
    assert cost <= WORKFLOW_MOST, (
        f"a workflow from start to end cost {cost:.1f} units, and at most {WORKFLOW_MOST} are allowed"
    )


@pytest.fixture(scope="module")
async def edge() -> AsyncIterator[EdgeWork]:
    async with edge_work() as at_work:
        await at_work.task()
        yield at_work


async def test_three_requests_for_a_task_do_not_cost_much_more_than_they_did(edge: EdgeWork, tmp_path: Path):
    async def some() -> None:
        for _ in range(ASKED):
            await edge.task()

    cost = await units(tmp_path, ASKED, some)
    assert cost <= EDGE_MOST, (
        f"start, poll and completion cost {cost:.1f} units, and at most {EDGE_MOST} are allowed"
    )


async def test_a_task_costs_as_much_beside_many_that_wait(work: EngineWork, tmp_path: Path):
    """Claims walk past none of them: twice the cost is far from what a walk would take."""
    alone = await units(tmp_path, TASKS, lambda: work.tasks(TASKS, AT_ONCE))
    await work.start_tasks(20 * TASKS)
    beside = await units(tmp_path, TASKS, lambda: work.tasks(TASKS, AT_ONCE))
    assert beside <= 2 * alone, (
        f"a task cost {beside:.1f} units beside {20 * TASKS} others, {alone:.1f} alone"
    )
