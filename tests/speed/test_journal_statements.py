"""What the journal costs: one row for each step of a task's life, in the commit that is written anyway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.speed.engine_work import EngineWork, engine_work
from tests.speed.statement_log import Seen, StatementLog, log_postgres, log_sqlite

TIMES = 3
MANY = 50
STEPS = ("start", "claim", "complete")


async def _counted(work: EngineWork, log: StatementLog, at_once: int) -> dict[str, Seen]:
    """The fewest statements of each step in the life of some tasks."""
    found: dict[str, Seen] = {}
    for _ in range(TIMES):
        taken = []

        async def claim() -> None:
            taken.extend(await work.claim(at_once))  # noqa: B023 - called before the next round

        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "start": lambda: work.start_tasks(at_once),
            "claim": claim,
            "complete": lambda: work.complete_all(taken),  # noqa: B023 - called before the next round
        }
        for name in STEPS:
            seen = await log.fewest(1, steps[name])
            if name not in found or len(seen) < len(found[name]):
                found[name] = seen
    return found


def _journal_rows(seen: Seen) -> int:
    return sum("journal" in str(statement).lower() for statement in seen)


@pytest.fixture(scope="module")
async def lives(address: Path | str) -> dict[tuple[bool, int], dict[str, Seen]]:
    """Statements with and without the journal, for one task and for many at once."""
    found: dict[tuple[bool, int], dict[str, Seen]] = {}
    on_sqlite = isinstance(address, Path)
    for journals in (False, True):
        log = StatementLog()
        place = address.with_name(f"{journals}.db") if isinstance(address, Path) else address
        with pytest.MonkeyPatch.context() as patch:
            (log_sqlite if on_sqlite else log_postgres)(log, patch)
            async with engine_work(place, journals=journals, first=1_000 if journals else 1) as work:
                await work.tasks(10, 2)
                for at_once in (1, MANY):
                    found[journals, at_once] = await _counted(work, log, at_once)
    return found


def test_without_a_journal_nothing_is_written_for_it(lives: dict[tuple[bool, int], dict[str, Seen]]) -> None:
    for at_once in (1, MANY):
        assert [_journal_rows(lives[False, at_once][step]) for step in STEPS] == [0, 0, 0]


def test_each_step_of_a_task_is_at_most_one_row_more(lives: dict[tuple[bool, int], dict[str, Seen]]) -> None:
    """On SQLite each row counts; PostgreSQL writes those of a commit with one statement, on the same journey."""
    for at_once in (1, MANY):
        without, with_journal = lives[False, at_once], lives[True, at_once]
        for step in STEPS:
            more = len(with_journal[step]) - len(without[step])
            noise = 1 if at_once == 1 else len(without[step]) // 2
            assert more <= at_once + noise, (step, at_once, len(without[step]), len(with_journal[step]))
            assert _journal_rows(with_journal[step]) <= at_once + 1
