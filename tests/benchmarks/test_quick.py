"""The benchmarks' smoke: every part runs on SQLite and the report has its shape; no figure is judged."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.bindings import PROFILED
from benchmarks.peer_systems import PEERS
from benchmarks.stands import StoreName
from tests.benchmarks.runs import quick_run

STORES = {"sqlite"}
SPREAD = {"median", "min", "max"}
APART = ("admission", "sdk", "workflows", "beside", "footprint", "soak")
"""Parts that have tests of their own."""
pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """One quick run of all parts but those that have tests of their own: its JSON and what it printed."""
    folder = tmp_path_factory.mktemp("bench")
    parts = [name for name in NAMES if name not in (*StoreName, *APART)]
    nothing_installed = {"XDG_CACHE_HOME": str(folder)}
    return quick_run(folder, "sqlite", *parts, seconds_max=840, environment=nothing_installed)


def test_a_quick_run_measures_every_workload(run):
    report, _ = run
    found = {(row["store"], row["name"]) for row in report["workloads"]}
    names = {"workflow", "workflow-batch", "activity", "activity-batch"}
    assert found == {(store, name) for store in STORES for name in names}


def test_every_workload_stands_beside_the_limits_of_the_same_run(run):
    report, _ = run
    for row in report["workloads"]:
        assert set(row["per_second"]) == SPREAD
        assert all(value is not None for value in row["ratios"].values()), row
        assert {"server", "client"} <= set(row["cpu_ms"])
        assert ("database" in row["cpu_ms"]) == (row["store"] == "postgres")
        assert set(row["latency_ms"]) == {"p50", "p99"}
        assert set(row["load"]) == SPREAD


def test_limits_of_disk_and_of_requests_are_measured(run):
    report, _ = run
    by_store = {store: {row["name"] for row in report["limits"] if row["store"] == store} for store in STORES}
    common = {
        "commits one by one",
        "rows in commits of 100",
        "requests for a page, nothing checked",
        "requests through all checks, no store",
        "requests that commit one row",
    }
    assert by_store == {"sqlite": common}


def test_few_and_many_other_tasks_are_compared_waiting_and_finished(run):
    report, _ = run
    found = {(row["store"], row["name"]) for row in report["scaling"]}
    cases = {"others wait in the same queue", "others wait in another queue", "others have ended"}
    assert found == {(store, case) for store in STORES for case in cases}
    for row in report["scaling"]:
        assert row["few"] < row["many"]
        assert set(row["per_second"]) == {"few", "many"}
        assert all(value is not None for value in row["ratios"].values()), row


def test_dispatch_rates_are_compared_over_keys_backlogs_and_fairness(run):
    report, _ = run
    rates, ratios = report["dispatch_rates"]["rates"], report["dispatch_rates"]["ratios"]
    assert {row["store"] for row in rates} == {row["store"] for row in ratios} == STORES
    assert {row["fairness"] for row in rates} == {"on, never set", "on", "off"}
    for store in STORES:
        aimed = [row for row in ratios if row["store"] == store and row["target"] is not None]
        assert len({row["name"] for row in aimed}) == 3
        assert {row["batch"] for row in aimed} == {1, 50}
    assert all(set(row["rate"]) == set(row["cpu"]) == SPREAD for row in ratios)


def test_accuracy_is_asked_and_a_peer_that_is_not_there_is_left_out(run):
    report, _ = run
    rows = report["accuracy"]
    assert {row["system"] for row in rows} == {f"penstock, {store}" for store in STORES}
    assert {row["experiment"] for row in rows} == {"shares", "crowd"}
    assert {row["setting"] for row in rows} == {"50 a poll", "1 a poll"}


def test_the_report_says_where_it_was_measured_and_prints_a_table(run):
    report, printed = run
    assert {"date", "cores", "python", "sqlite", "postgres", "file_system"} <= set(report["environment"])
    titles = (
        "Limits of this machine",
        "Workloads through HTTP",
        "The same work beside",
        "Dispatches at the engine",
        "Weights 5, 3 and 2",
        "Equal keys",
    )
    for title in titles:
        assert title in printed


def test_workers_are_started_and_left_alone_in_one_process_and_with_children(run):
    report, printed = run
    rows = report["workers"]["figures"]
    assert {(row["worker"], row["kind"]) for row in rows} == {
        ("penstock, sqlite", "one process"),
        ("penstock, sqlite", "2 child processes"),
    }
    for row in rows:
        assert set(row["first_task_ms"]) == set(row["cpu_percent"]) == SPREAD
        assert 0 < row["pss_mib"]["median"] <= row["rss_mib"]["median"]
        assert row["processes"]["median"] >= (3 if row["kind"] == "2 child processes" else 1)
    assert report["workers"]["ratios"] == []
    assert "Worker programs" in printed


def test_ours_is_measured_in_every_workload_and_peers_that_are_not_there_are_named(run):
    report, printed = run
    peers = report["peers"]
    assert {row["system"] for row in peers["figures"]} == {"penstock, sqlite"}
    assert {row["system"] for row in peers["missing"]} == set(PEERS)
    measured = {row["measure"] for row in peers["figures"]}
    assert {
        "tasks",
        "task_cpu",
        "batches",
        "drain",
        "result_p50",
        "workflows_1",
        "workflows_5_p99",
    } < measured
    assert {"first_task", "worker_memory", "worker_cpu", "server_memory", "server_cpu"} < measured
    for row in peers["figures"]:
        assert set(row["value"]) == set(row["load"]) == SPREAD
    assert "synchronous=FULL" in printed


def test_ours_is_profiled_in_every_workload_and_a_sampler_that_is_not_there_is_named(run):
    report, printed = run
    found = report["profile"]
    assert {row["name"] for row in found["rows"]} == set(PROFILED.values())
    for row in found["rows"]:
        assert {each["process"] for each in row["processes"]} == {"server", "worker", "client"}
        assert row["counts"]["statements"] > 0 or row["name"] == "idle", (
            "who rests may say nothing for a while"
        )
        assert row["samples"] == []
        assert row["missing"]["layers and functions"].startswith("py-spy: it is not installed")
    assert "Profile: what is asked for each" in printed


def test_several_servers_need_postgres(run):
    report, _ = run
    assert report["servers"] == []


def test_every_target_has_a_line_whether_it_was_measured_or_not(run):
    report, printed = run
    assert {row["number"] for row in report["targets"]} == set(range(1, 23))
    assert {row["verdict"] for row in report["targets"] if row["number"] == 1} == {"not measured in this run"}
    assert all(
        row["ratio"] is not None
        for row in report["targets"]
        if row["number"] == 20 and "fair" in row["measure"]
    )
    assert "Of 22 targets" in printed
