"""The benchmarks of workflows: runs are as long, as wide and as many as they say, and the report has its shape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.client_processes import crew
from benchmarks.sizes import QUICK
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.workflows_client import talk
from benchmarks.workflows_crowds import grow
from benchmarks.workflows_fan_out import group
from benchmarks.workflows_histories import prepare
from benchmarks.workflows_lists import QUERIES, close_one
from benchmarks.workflows_meter import Took, row
from tests.benchmarks.runs import quick_run
from tests.support import live

STORES = {"sqlite", "postgres"}
SPREAD = {"median", "min", "max"}
RUNS = 2000
real = pytest.mark.acceptance


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with crew() as hired:
        yield Ground(tmp_path, hired, None)


@pytest.fixture
def stand(ground: Ground) -> Iterator[Stand]:
    with serving(StoreName.SQLITE, ground, new_store(StoreName.SQLITE, ground)) as server:
        yield server


@real
@pytest.mark.parametrize("events", [10, 600, 2500])
async def test_a_run_gets_exactly_as_many_events_as_its_history_shall_have(stand, events):
    await prepare(stand, events)
    async with talk(stand.url) as talking:
        task = await talking.take_one()
    assert task["last_history_sequence"] == events


def test_a_group_numbers_its_members_from_the_first_step_on():
    commands = list(group(3))
    assert [command["parallel_group_index"] for command in commands] == [0, 1, 2]
    assert {command["parallel_group_id"] for command in commands} == {"parallel-activities:1:3"}


def test_the_time_of_a_step_is_compared_for_each_thing_that_it_did():
    one_by_one = Took({}, [10.0, 10.0], seconds=0.02, cpu_seconds=0.02, done=2)
    together = Took({}, [40.0], seconds=0.04, cpu_seconds=0.02, done=8)
    found = row(StoreName.SQLITE, "part", "what", 8, [together], [one_by_one])
    assert found["ratios"] == {"time": 0.5, "cpu": 0.25}
    assert found["per_second"]["median"] == 200


@pytest.fixture(params=list(StoreName))
def database(request: pytest.FixtureRequest, ground: Ground) -> tuple[StoreName, str]:
    """An empty database of either store."""
    store: StoreName = request.param
    if store is StoreName.SQLITE:
        return store, new_store(store, ground)
    url: str = request.getfixturevalue("postgres_url")
    live.migrate(ground.folder, url)
    return store, url


@real
@pytest.mark.slow
async def test_copied_runs_are_found_by_every_filter_as_often_as_they_were_made(database, ground):
    store, url = database
    with serving(store, ground, url) as server:
        await close_one(server)
    await asyncio.to_thread(grow, url, RUNS)
    numbers = range(1, RUNS + 1)
    expected = {
        "all": RUNS + 1,
        "type (one in 10)": sum(n % 10 == 3 for n in numbers),
        "status (one in 100)": sum(n % 100 == 0 for n in numbers),
        "customer (one in 1,000)": sum(n // 10 % 1000 == 123 for n in numbers),
        "amount (99 of 100)": sum(n // 7 % 1000 >= 10 for n in numbers),
        "type, customer and status": sum(n // 10 % 1000 == 123 and n % 10 == 3 for n in numbers),
        "type and queue that never meet": 0,
        "part of an id": 1,
    }
    with serving(store, ground, url) as server:
        async with talk(server.url) as talking:
            for name, count in expected.items():
                query = {"query": QUERIES[name]} if QUERIES[name] else {}
                found = await talking.ask("/api/workflows/count", query)
                assert (name, found["count"]) == (name, count)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """One quick run of this part: its JSON and what it printed."""
    report, printed = quick_run(tmp_path_factory.mktemp("bench"), "workflows", seconds_max=840)
    return report["workflows"], printed


@real
@pytest.mark.slow
@pytest.mark.timeout(900)
class TestAQuickRun:
    def test_measures_every_part_on_both_stores(self, run):
        report, _ = run
        found = {(row["store"], row["part"]) for row in report["at_work"]}
        parts = {"history", "fan-out", "signals", "list"}
        assert found == {(store, part) for store in STORES for part in parts}
        for figures in report["at_work"]:
            assert set(figures["ms"]) == set(figures["per_second"]) == set(figures["cpu_ms"]) == SPREAD

    def test_compares_long_histories_to_short_ones(self, run):
        report, _ = run
        appends = [row for row in report["at_work"] if row["what"] == "completion of 4 commands"]
        assert {row["size"] for row in appends} == set(QUICK.history_events)
        assert all(row["ratios"]["time"] is not None for row in appends)

    def test_compares_a_group_to_standalone_activities_and_its_last_reports_to_the_first(self, run):
        report, _ = run
        rows = [row for row in report["at_work"] if row["what"].startswith("activities of one group")]
        assert len(rows) == 4
        assert all(row["ratios"]["time"] and row["late_to_early"] for row in rows)

    def test_compares_lists_of_many_to_lists_of_few(self, run):
        report, _ = run
        many = [row for row in report["at_work"] if row["part"] == "list" and row["size"] == QUICK.listed[1]]
        assert all(row["ratios"]["time"] is not None for row in many)
        assert set(QUERIES) <= {row["what"].split(": ")[0] for row in many}

    def test_leaves_a_server_alone_beside_no_timers_and_beside_many(self, run):
        report, _ = run
        found = {(row["store"], row["timers"]) for row in report["asleep"]}
        assert found == {(store, count) for store in STORES for count in (0, QUICK.timers)}
        assert all(row["memory_mib"]["median"] > 0 for row in report["asleep"])

    def test_prints_a_table_of_what_works_and_one_of_what_sleeps(self, run):
        _, printed = run
        for title in ("Workflows where they are large", "beside timers that sleep"):
            assert title in printed
