"""What binds a target, said from the profile of its workload; tables and pictures of profiles."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from benchmarks.bindings import NO_PROFILE, NO_WORKLOAD, PROFILED, binds, grows
from benchmarks.charts import draw, kept, titles
from benchmarks.counted_server import told
from benchmarks.counters import Counted, Statement, requests_in
from benchmarks.group_commit import merged
from benchmarks.layer_charts import COLOURS
from benchmarks.layers import Layer
from benchmarks.markdown import page
from benchmarks.peer_measures import Workload
from benchmarks.profiled_work import jobs
from benchmarks.profiles import COUNTS
from benchmarks.report_profiles import show_profile
from benchmarks.statements import named, without_values
from benchmarks.targets import LINES, Verdict, as_rows, judged
from tests.benchmarks.test_targets import figure, ratio_row

SVG = "{http://www.w3.org/2000/svg}"


def sampled(process: str = "server", samples: int = 500, **changes: Any) -> dict[str, Any]:
    return {
        "process": process,
        "slowed": 1.5,
        "native": True,
        "samples": samples,
        "idle_samples": 10,
        "layers": {"HTTP": 0.6, "engine": 0.4},
        "waits": {"the disk": 0.2},
        "functions": [{"function": "Endpoint._answer (server/handler.py)", "share": 0.3}],
    } | changes


def profiled(store: str = "postgres", name: str = "tasks", **changes: Any) -> dict[str, Any]:
    """One row of the part, as it is kept."""
    return {
        "store": store,
        "name": name,
        "about": f"the workload {name}",
        "item": "task",
        "count": 1000,
        "seconds": 1.0,
        "per_second": 1000.0,
        "latency_ms": {"p50": 8.0, "p99": 20.0},
        "processes": [
            {"process": "server", "cpu_ms": 0.9, "cores": 0.9, "kernel": 0.3},
            {"process": "client", "cpu_ms": 0.3, "cores": 0.3, "kernel": 0.1},
        ],
        "others_percent": 2.0,
        "load": 1.0,
        "counts": {
            "requests": {"start_activity": 1.0, "poll_activity_tasks": 0.25},
            "switches": {"server": 3.0},
            "disk_bytes": 9000.0,
            "statements": 4.5,
            "commits": 0.125,
            "database_ms": 0.5,
            "frequent": [],
            "slowest": [{"statement": "INSERT INTO tasks", "calls": 1.0, "ms": 0.4}],
        },
        "memory_mib": {"server": {"values": 40.0, "code": 4.0}, "worker": {"values": 30.0, "code": 2.0}},
        "samples": [sampled()],
        "not_sampled": {},
        "connections": {"runs": 0.75, "IO: WALSync": 0.25},
        "missing": {},
        "first_task": {
            "ms": 500.0,
            "cpu_ms": 400.0,
            "import_cpu_ms": 300.0,
            "import_mib": {"worker": 25.0, "server": 20.0},
        },
    } | changes


def cores(**each: float) -> list[dict[str, Any]]:
    return [{"process": name, "cpu_ms": used, "cores": used, "kernel": 0.2} for name, used in each.items()]


def report(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"environment": {"cores": 2}, "profile": {"rate": 100, "rows": list(rows)}} | more


def said(row: dict[str, Any], measure: str = "tasks") -> str:
    return binds(report(row), f"penstock, {row['store']}", measure)


def test_a_process_with_a_full_core_binds_and_its_layers_and_counts_are_told():
    text = said(profiled())
    assert text.startswith("one core binds: server 0.90 of a core, 0.90 ms CPU a task")
    assert "1.20 of 2 cores busy, 1.20 ms CPU a task in all processes" in text
    assert (
        "of the server: HTTP 60 %, engine 40 % (most own time: Endpoint._answer (server/handler.py) 30 %)"
        in text
    )
    assert "threads of the server wait for the disk 20 %" in text
    assert "1.25 requests, 4.5 statements, 0.125 commits, 9 KB to disk a task" in text
    assert "0.40 ms in `INSERT INTO tasks`" in text
    assert text.endswith("of its busy connections: runs 75 %, IO: WALSync 25 %")


@pytest.mark.parametrize(
    ("used", "others", "begins"),
    [
        (cores(server=0.95, client=0.9), 0.0, "one core binds: server"),
        (cores(server=0.8, worker=0.6, client=0.5), 0.0, "the CPU of the machine binds"),
        (cores(server=0.8), 110.0, "the machine was full, but others had 1.10 cores of it"),
        (cores(server=0.7, client=0.2), 0.0, "the interpreter lock of the server binds"),
        (cores(server=0.4, client=0.2), 0.0, "waiting binds, for no process has a full core"),
    ],
)
def test_a_core_or_all_or_neighbours_or_a_lock_or_waiting_binds_a_rate(used: Any, others: float, begins: str):
    locked = [sampled(waits={"the interpreter lock": 0.2})]
    assert said(profiled(processes=used, others_percent=others, samples=locked)).startswith(begins)


def test_where_the_database_is_busiest_the_layers_of_the_server_that_asks_it_are_told():
    text = said(profiled(processes=cores(server=0.5, database=0.95)))
    assert text.startswith("one core binds: database")
    assert "of the server: HTTP 60 %" in text


def test_a_delay_is_compared_with_the_cpu_that_it_takes():
    waits = said(profiled(name="latency"), "result_p50")
    assert waits.startswith("waiting binds, for disk and wake-ups: 8.00 ms to the result, beside 1.20 ms CPU")
    works = said(profiled(name="latency", processes=cores(server=5.0, worker=2.0)), "start_p50")
    assert works.startswith(
        "the CPU on the way binds: 8.00 ms to the result, beside 7.00 ms CPU a task (server 5.00"
    )


def test_start_memory_and_rest_are_said_from_the_profile_of_a_system_at_rest():
    row = profiled(name="idle", item="second")
    assert said(row, "first_task").startswith("400 of 500 ms to the first task are CPU of the worker")
    late = profiled(
        memory_mib={"server": {"values": 60.0, "code": 4.0}, "worker": {"values": 33.0, "code": 2.0}}
    )
    told = binds(report(row, late), "penstock, postgres", "server_memory")
    assert (
        told
        == "of the server, 20 MiB are values after its imports alone, 40 at rest, 60 after work; 4 MiB code"
    )
    assert "woken 3.0 times a second" in said(row, "server_cpu")
    assert "4.5 statements" in said(row, "server_cpu")


def test_few_samples_tell_no_layers_and_none_are_needed_for_cpu_and_counts():
    for samples in ([], [sampled(samples=5)]):
        text = said(profiled(samples=samples))
        assert "HTTP" not in text
        assert "4.5 statements" in text


def test_a_missed_target_says_what_binds_it_and_one_at_its_goal_nothing():
    figures = [figure("penstock, postgres", "tasks", 800.0), figure("pgqueuer", "tasks", 1000.0)]
    whole = report(profiled(), peers={"figures": figures})
    first = as_rows(judged(whole))[0]
    assert first["verdict"] == "missed"
    assert first["binds"].startswith("one core binds: server")
    figures[0] = figure("penstock, postgres", "tasks", 8000.0)
    assert as_rows(judged(whole))[0]["binds"] == ""


def test_without_a_profile_it_is_said_how_to_get_one():
    figures = [figure("penstock, postgres", "tasks", 800.0), figure("pgqueuer", "tasks", 1000.0)]
    for profile in ({}, {"profile": {"rows": [profiled(store="sqlite")]}}):
        first = judged({"peers": {"figures": figures}} | profile)[0]
        assert first.verdict is Verdict.MISSED
        assert first.binds == NO_PROFILE


def test_a_ratio_to_itself_is_explained_by_its_cpu_or_not():
    assert "1.50 times as much: the work itself grew" in grows(0.6, 1.5)
    assert "does not explain it" in grows(0.6, 1.05)
    assert grows(0.6, None) == NO_WORKLOAD
    rows = [ratio_row("sqlite", "backlog 100,000 to 1,000, 100 keys", 0.5, cpu={"median": 1.9})]
    (found,) = (each for each in judged({"dispatch_rates": {"ratios": rows}}) if each.binds)
    assert "1.90 times" in found.binds


def test_every_line_with_a_peer_belongs_to_a_profile_that_there_is():
    names = {job.name for job in jobs(COUNTS, 1.0, [*Workload])}
    assert set(PROFILED.values()) == names
    for line in LINES:
        assert bool(line.ours) == bool(line.key)
        assert not line.key or line.key in PROFILED, line


def test_of_the_profiles_those_workloads_are_made_that_were_chosen():
    assert [job.name for job in jobs(COUNTS, 1.0, [Workload.WORKFLOWS])] == ["workflows_1", "workflows_5"]


def printed(found: dict[str, Any]) -> str:
    out = io.StringIO()
    show_profile(found, Console(file=out, width=400))
    return out.getvalue()


def test_tables_have_processes_counts_layers_functions_and_statements():
    text = printed(report(profiled())["profile"])
    for title in (
        "Profile: CPU ms for each task",
        "Profile: what is asked for each",
        "Profile: server, CPU ms for each by layer",
        "Profile: postgres, server, functions by own time",
        "Profile: statements of PostgreSQL",
    ):
        assert title in text
    assert "0.540 (60 %)" in text
    assert "start_activity 1, poll_activity_tasks 0.25" in text


def test_without_a_sampler_there_are_cpu_and_counts_and_it_is_said():
    missing = {"layers and functions": "py-spy: it is not installed"}
    rows = [profiled(name=name, samples=[], missing=missing) for name in ("tasks", "drain")]
    text = printed({"rate": 100, "rows": rows})
    assert text.count("profile, postgres: no layers and functions: py-spy: it is not installed") == 1
    assert "Profile: CPU ms" in text
    assert "by layer" not in text


def test_a_process_that_could_not_be_sampled_is_named():
    text = printed(report(profiled(not_sampled={"worker": "Permission Denied"}))["profile"])
    assert "profile, postgres, the workload tasks: the worker was not sampled: Permission Denied" in text


def test_the_page_has_a_table_of_what_binds_missed_targets():
    figures = [
        figure(
            system, "tasks", value, about="", cpu_ms={}, others_percent=None, load={"min": 1.0, "max": 1.0}
        )
        for system, value in (("penstock, postgres", 800.0), ("pgqueuer", 1000.0))
    ]
    text = page(report(profiled(), peers={"systems": [], "missing": [], "figures": figures}))
    assert "### What binds the targets that are not at their goal" in text
    (line,) = [
        each for each in text.splitlines() if each.startswith("| postgres, the workload tasks | one core")
    ]
    assert "1 PgQueuer (missed)" in line


def test_a_newer_profile_of_a_workload_takes_the_place_of_the_older_one():
    old, new = (
        {"run": run, "profile": {"rows": [profiled(count=count), profiled("sqlite")]}}
        for run, count in (("1", 10), ("2", 20))
    )
    rows = merged([new, old])["profile"]["rows"]
    assert {(row["store"], row["run"]) for row in rows} == {("postgres", "2"), ("sqlite", "2")}


def test_a_picture_has_a_bar_of_layers_for_each_workload_and_can_be_read_aloud(tmp_path: Path):
    whole = report(profiled(), profiled(name="drain"), profiled("sqlite", samples=[]))
    (path,) = draw(whole, tmp_path)
    assert titles()[path.name] == "Server on PostgreSQL: where its CPU goes"
    drawing = ElementTree.fromstring(path.read_text())
    pieces = [
        float(str(each.get("width"))) for each in drawing.iter(f"{SVG}rect") if each.get("height") == "22"
    ]
    assert pieces == [300.0, 200.0] * 2
    assert "the workload drain: HTTP 60%, engine 40%" in str(drawing.findtext(f"{SVG}desc"))
    (again,) = draw(kept(whole), tmp_path / "again")
    assert again.read_text() == path.read_text()


def test_every_layer_of_a_server_has_a_colour_of_its_own():
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert set(Layer) - set(COLOURS) == {
        Layer.SDK,
        Layer.REPLAY,
        Layer.TASKS,
        Layer.BENCHMARK,
        Layer.REST,
    }


def test_requests_of_all_statuses_are_counted_by_operation():
    text = (
        'penstock_requests_total{operation="start",status="200"} 3.0\n'
        'penstock_requests_total{operation="start",status="409"} 1.0\n'
        'penstock_requests_created{operation="start",status="200"} 1.7e+09\n'
        "penstock_open_polls 2.0\n"
    )
    assert requests_in(text) == {"start": 4.0}


def test_what_makes_a_transaction_is_no_statement_and_commits_are_counted_apart():
    sent = [
        Statement("BEGIN", 2, 0.1),
        Statement("INSERT INTO tasks", 8, 0.2),
        Statement("SELECT 1", 4, 0.4),
        Statement("COMMIT", 2, 9.0),
    ]
    found = Counted({"start": 4.0}, sent, 8000.0, {"server": 12}).each(4)
    assert (found["statements"], found["commits"], found["database_ms"]) == (3.0, 0.5, 150.0)
    assert [each["statement"] for each in found["slowest"]] == ["SELECT 1", "INSERT INTO tasks"]
    assert [each["calls"] for each in found["frequent"]] == [2.0, 1.0]
    assert (found["requests"], found["disk_bytes"]) == ({"start": 1.0}, 2000.0)


def test_statements_are_the_same_whatever_their_values():
    first, second = (
        f"UPDATE  t1 SET a = '{word}'\n WHERE n < {n}" for word, n in (("it''s", 1), ("other", 22))
    )
    assert named(without_values(first)) == named(without_values(second)) == "UPDATE t1 SET a = ? WHERE n < ?"


def test_a_statement_is_named_by_where_it_looks_or_by_what_it_writes():
    columns = ", ".join(f"t.column_{number}" for number in range(100))
    assert named(f"SELECT {columns} FROM tasks t WHERE t.id = $1") == "SELECT … FROM tasks t WHERE t.id = $1"
    several = (
        "WITH w1 AS (INSERT INTO meters (a) SELECT 1 ON CONFLICT DO UPDATE SET a = 2), w2 AS (UPDATE tasks SET a = 1), "
        "w3 AS (SELECT 1 FROM lanes FOR UPDATE OF lanes) INSERT INTO events (b)"
    )
    assert named(several) == "INSERT INTO meters, events; UPDATE tasks"


def test_what_a_server_told_of_its_statements_is_read_from_where_it_was(tmp_path: Path):
    file = tmp_path / "statements"
    file.write_text("old\n")
    before = file.stat().st_size
    with file.open("a") as more:
        more.write("COMMIT\nCOMMIT\n")
    assert told(file, before) == {"COMMIT": 2}
