"""The benchmark of worker programs: what is read off processes, and which workers are compared."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from benchmarks.peers.environments import Absent, python_of
from benchmarks.peers.marks import VARIABLE, mark, marks
from benchmarks.process_trees import cpu_seconds_of_trees, memory, tree
from benchmarks.worker_systems import Kind
from benchmarks.workers import Reading, figures, ratios

PARENT = """
import subprocess, sys
wait = "import sys; print(0, flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", wait], stdin=subprocess.PIPE)
sys.stdin.read()
"""


def reading(first_task_ms: float, cpu: float = 1.0) -> Reading:
    return Reading(first_task_ms, 90.0, cpu, 0.0, pss_mib=30.0, rss_mib=40.0, processes=1, load=0.5)


FOUND = {
    ("ours", Kind.ONE): [reading(value) for value in (100.0, 300.0, 200.0)],
    ("ours", Kind.CHILDREN): [reading(400.0)],
    ("peer", Kind.ONE): [reading(400.0, cpu=0.0)],
    ("other", Kind.CHILDREN): [reading(800.0, cpu=4.0)],
}


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A process with a child."""
    process = subprocess.Popen((sys.executable, "-c", PARENT), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n"
    yield process
    process.communicate()


def test_a_tree_is_a_process_with_its_children_and_costs_what_they_do(parent):
    pids = tree(parent.pid)
    assert len(pids) == 2
    assert pids[0] == parent.pid
    assert cpu_seconds_of_trees([parent.pid]) > cpu_seconds_of_trees([pids[1]]) > 0
    whole, child = memory(parent.pid), memory(pids[1])
    assert whole.rss >= whole.pss > child.pss > 0


def test_a_process_that_is_gone_costs_nothing():
    gone = subprocess.Popen((sys.executable, "-c", ""))
    gone.wait()
    assert tree(gone.pid) == []
    assert cpu_seconds_of_trees([gone.pid]) == memory(gone.pid).rss == 0


def test_cpu_is_counted_finer_than_the_ticks_of_the_kernel():
    before, own = cpu_seconds_of_trees([os.getpid()]), time.process_time()
    while time.process_time() - own < 0.002:
        pass
    assert cpu_seconds_of_trees([os.getpid()]) - before >= 0.002


def test_a_mark_is_read_when_it_is_complete(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "marks"))
    assert marks(tmp_path / "marks") == []
    mark()
    with (tmp_path / "marks").open("a") as file:
        file.write("12.")
    (only,) = marks(tmp_path / "marks")
    assert only <= time.monotonic()


def test_ours_is_compared_with_peers_that_run_tasks_in_the_same_kind_of_processes():
    rows = {(row["ours"], row["peer"], row["kind"]): row for row in ratios(FOUND, ["ours"])}
    assert set(rows) == {("ours", "peer", Kind.ONE), ("ours", "other", Kind.CHILDREN)}
    assert rows["ours", "peer", Kind.ONE]["first_task_ms"] == 0.5
    assert rows["ours", "other", Kind.CHILDREN]["cpu_percent"] == 0.25


def test_nothing_is_divided_by_a_peer_that_used_no_cpu():
    (row,) = [row for row in ratios(FOUND, ["ours"]) if row["peer"] == "peer"]
    assert row["cpu_percent"] is None


def test_a_figure_has_the_median_of_its_repetitions_and_their_load():
    row = figures(FOUND)[0]
    assert row["first_task_ms"] == {"median": 200.0, "min": 100.0, "max": 300.0}
    assert row["load"]["median"] == 0.5


def test_a_python_that_is_not_here_is_said(tmp_path, monkeypatch):
    for name in ("PATH", "PYENV_ROOT", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with pytest.raises(Absent, match=r"needs Python 3\.99"):
        python_of("3.99")
