"""The part that has peers: what is counted of readings, what of it may be chosen, and who is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import peer_measures as measures
from benchmarks.client_processes import Crew
from benchmarks.peer_measures import Workload
from benchmarks.peer_readings import Reading, Spent
from benchmarks.peer_systems import PEERS, Counts, ours
from benchmarks.report_peers import TABLES
from benchmarks.side_by_side import SYSTEMS, SideBySide, figures
from benchmarks.stands import Ground, StoreName
from benchmarks.targets import LINES


def ground(folder: Path) -> Ground:
    return Ground(folder, Crew(), None)


def test_a_figure_is_the_median_of_its_repetitions_with_the_cpu_of_every_process():
    readings = [
        Reading(measures.TASKS, value, {"server": cpu}, others)
        for value, cpu, others in ((10.0, 3.0, 5.0), (30.0, 1.0, 50.0), (20.0, 2.0, 0.0))
    ]
    (row,) = figures({("ours", measures.TASKS): readings})
    assert row["value"] == {"median": 20.0, "min": 10.0, "max": 30.0}
    assert row["cpu_ms"]["server"]["median"] == 2.0
    assert row["others_percent"]["max"] == 50.0
    assert row["repetitions"] == 3


def test_cpu_is_shared_among_all_tasks_of_a_measurement():
    assert Spent({"server": 0.5, "client": 0.25}).each_ms(100) == {"server": 5.0, "client": 2.5}


def test_a_smoke_does_a_little_of_everything_that_a_full_run_does():
    full = Counts(3000, 0, 10_000, 100, {1: 1000}, {5: 10})
    least = full.least()
    assert (least.tasks, least.batched, least.backlog) == (20, 0, 20)
    assert (least.workflows, least.queued) == ({1: 5}, {5: 5})


def test_a_peer_that_needs_what_is_not_here_is_left_out_and_said(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    part = SideBySide(
        ground(tmp_path), said.append, quick=True, repetitions=1, systems=[*PEERS], workloads=[*Workload]
    )
    found = part.run([])
    assert found["figures"] == []
    assert {row["system"] for row in found["missing"]} == set(PEERS)
    assert all(f"peers, {name}: left out" in "\n".join(said) for name in PEERS)


def test_every_system_says_what_it_keeps_when_the_machine_fails(tmp_path: Path):
    for store, kept in (
        (StoreName.SQLITE, "synchronous=FULL"),
        (StoreName.POSTGRES, "synchronous_commit=on"),
    ):
        assert kept in ours(store, ground(tmp_path)).settings


def test_targets_name_systems_and_measures_that_there_are():
    shown = {key for heads in TABLES.values() for key in heads}
    assert {measure.key for measure in _all_measures()} == shown
    assert set(PEERS) < set(SYSTEMS)
    assert LINES


def _all_measures() -> list[measures.Measure]:
    made = [each for each in vars(measures).values() if isinstance(each, measures.Measure)]
    for percentile in ("p50", "p99"):
        made += [measures.latency(to, percentile) for to in ("start", "result")]
        made += [measures.workflow_latency(steps, percentile) for steps in measures.STEPS]
    made += [measures.queued_latency(steps, "p99") for steps in measures.STEPS]
    made += [make(steps) for make in (measures.workflows, measures.queued) for steps in measures.STEPS]
    return made


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_system_may_be_chosen_by_its_name(name: str):
    assert name in (*PEERS, "penstock, sqlite", "penstock, postgres")
