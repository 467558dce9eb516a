"""The parts about what must not grow: a smoke on SQLite; no figure is judged."""

from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks.runs import quick_run

SPREAD = {"median", "min", "max"}
pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """One quick run of these parts: its JSON and what it printed."""
    folder = tmp_path_factory.mktemp("bench")
    return quick_run(folder, "sqlite", "beside", "footprint", "soak", seconds_max=580)


def test_work_is_compared_beside_closed_workflows_sleeping_timers_and_idle_pollers(run):
    report, printed = run
    found = {(row["crowd"], row["name"]) for row in report["beside"]}
    crowds = ("closed workflows", "sleeping timers", "idle pollers")
    assert found == {(crowd, work) for crowd in crowds for work in ("activities", "workflows")}
    assert all(set(row["rate"]) == set(row["cpu"]) == SPREAD for row in report["beside"])
    assert "beside what does not concern it" in printed


def test_a_footprint_tells_imports_starts_and_memory_of_what_waits_and_is_open(run):
    report, _ = run
    names = "\n".join(row["name"] for row in report["footprint"])
    for part in ("import of a worker's modules", "start to ready", "waiting tasks", "open workflows"):
        assert part in names
    for row in report["footprint"]:
        assert "for each of" in row["name"] or row["value"]["min"] > 0, row


def test_a_soak_looks_at_memory_files_and_tables(run):
    report, printed = run
    names = {row["name"] for row in report["soak"]}
    assert {"server memory, MiB", "worker memory, MiB", "server open files", "database, MiB"} <= names
    assert all(row["last"] <= row["most"] for row in report["soak"])
    assert "A soak of" in printed
