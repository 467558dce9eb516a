"""The benchmark of SDKs: what its rows say of what was read, and a smoke of ours; no figure is judged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.environments import Absent, environment
from benchmarks.peers.exchange import Questions, Ticks
from benchmarks.sdk import figures, ratios
from benchmarks.sdk_readings import LESS, MORE, Measure, Reading
from benchmarks.sizes import FULL, QUICK
from tests.benchmarks.runs import quick_run

SPREAD = {"median", "min", "max"}
RATE, DELAY = Measure("rate", "per s", MORE), Measure("delay", "ms", LESS)


def test_ours_is_divided_by_each_peer_that_was_measured_alike():
    found = {
        ("ours", RATE): [Reading(RATE, value) for value in (90.0, 100.0, 110.0)],
        ("ours", DELAY): [Reading(DELAY, 5.0)],
        ("peer", RATE): [Reading(RATE, value) for value in (10.0, 20.0, 500.0)],
    }
    (only,) = ratios(found, ["ours"])
    assert (only["measure"], only["peer"], only["better"], only["ratio"]) == ("rate", "peer", MORE, 5.0)


def test_a_figure_is_the_median_of_its_repetitions_with_the_cpu_of_each_process():
    readings = [
        Reading(RATE, value, {"server": cpu}) for value, cpu in ((10.0, 3.0), (30.0, 1.0), (20.0, 2.0))
    ]
    (row,) = figures({("ours", RATE): readings})
    assert row["value"] == {"median": 20.0, "min": 10.0, "max": 30.0}
    assert row["cpu_ms"]["server"] == {"median": 2.0, "min": 1.0, "max": 3.0}


def test_every_figure_of_a_full_run_has_at_least_three_repetitions():
    assert FULL.repetitions >= 3


def test_a_peer_that_is_not_there_is_not_installed_by_a_quick_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    with pytest.raises(Absent, match="not installed"):
        environment(("nothing==1",), said.append, install=False)
    assert said == []
    assert list(tmp_path.iterdir()) == []


class Instant:
    """A system whose tasks have run before their start is acknowledged; it has no histories."""

    sends_at_once = 3
    workflows_at_once = 2

    def __init__(self, ticks: Ticks) -> None:
        self._ticks = ticks
        self.at_once = self.most_at_once = self.workflows = 0

    async def send(self) -> None:
        self._ticks.tick()

    async def ask(self) -> float:
        return self._ticks.tick()

    async def workflow(self, steps: int) -> None:
        self.workflows += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1

    async def fan_out(self, width: int) -> None:
        pass


class TestAClientThatIsAsked:
    @pytest.fixture
    def client(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instant:
        monkeypatch.setenv("BENCH_TICKS", str(tmp_path / "ticks"))
        return Instant(Ticks())

    async def test_counts_tasks_when_they_have_run(self, client):
        answer = await Questions(client, client._ticks).answer("tasks", [7])
        assert answer["count"] == 7
        assert client._ticks.count() == 7

    async def test_keeps_as_many_workflows_in_flight_as_the_system_does_best_with(self, client):
        answer = await Questions(client, client._ticks).answer("workflows", [9, 1])
        assert (answer["count"], client.workflows, client.most_at_once) == (9, 9, 2)
        assert set(answer["each"]) == {"p50", "p99"}

    async def test_tells_both_ways_of_a_task_on_an_idle_system(self, client):
        answer = await Questions(client, client._ticks).answer("latency", [2])
        assert answer["start"]["p50"] <= answer["result"]["p99"]

    async def test_says_what_its_system_is_unable_to_do(self, client):
        assert await Questions(client, client._ticks).answer("replay", ["history.json"]) == {"unable": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """One quick run of this part: its JSON and what it printed."""
    report, printed = quick_run(tmp_path_factory.mktemp("bench"), "sdk", "sqlite", seconds_max=280)
    return report["sdk"], printed


@pytest.mark.acceptance
@pytest.mark.slow
@pytest.mark.timeout(300)
class TestAQuickRun:
    def test_is_of_ours_on_sqlite_alone_and_says_what_is_kept(self, run):
        report, printed = run
        assert [system["name"] for system in report["systems"]] == ["penstock, sqlite"]
        assert "synchronous=FULL" in printed
        assert report["ratios"] == []

    def test_measures_everything_that_a_full_run_does(self, run):
        report, _ = run
        measured = [row["measure"] for row in report["figures"]]
        short, long = QUICK.sdk.cached_events
        for part in (
            "import of a worker's modules",
            "process start to first task",
            "resident memory",
            "idle worker: CPU",
            "send to first line, p50",
            "send to first line, p99",
            "send to result, p50",
            "send to result, p99",
            "standalone tasks",
            "workflows of 1 activity",
            "workflows of 5 activities",
            f"fan-out of {QUICK.sdk.fan_out}",
            "replay of a long history",
            f"cached run at {short}",
            f"cached run at {long}",
            f"{long} to {short} events: time",
        ):
            assert any(part in name for name in measured), part
        assert all(set(row["value"]) == set(row["load"]) == SPREAD for row in report["figures"])

    def test_tells_the_cpu_of_server_worker_and_client_for_each_task_and_workflow(self, run):
        report, _ = run
        rows = {row["measure"]: row["cpu_ms"] for row in report["figures"]}
        for name in ("standalone tasks, one worker", "workflows of 1 activity"):
            assert set(rows[name]) == {"server", "worker", "client"}

    def test_prints_a_table_of_figures_and_one_of_cpu(self, run):
        _, printed = run
        for title in ("SDKs in one run", "CPU ms for each task"):
            assert title in printed
