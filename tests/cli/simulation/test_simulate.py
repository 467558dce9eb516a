"""`penstock simulate` at the command line: no server, and nothing but the model is read."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.recorded_server import Run

MODEL = """
[queues.invoices]
max_active_leases = 2

[[arrivals]]
queue = "invoices"
key = "tenant-<big>"
count = 12
takes = "2s"

[[arrivals]]
queue = "invoices"
key = "tenant-a"
count = 2

[[workers]]
queue = "invoices"
slots = 10
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "model.toml").write_text(MODEL)
    return str(tmp_path / "model.toml")


def test_the_answer_begins_with_a_sentence(run: Run, path: str) -> None:
    result = run("simulate", path, "--replications", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith("In invoices 95 % of the tasks wait at most 11 s, mostly for: lease cap")
    assert "Not simulated:" in result.stdout


def test_a_change_is_compared_and_plotted(run: Run, path: str, tmp_path: Path) -> None:
    plots = tmp_path / "plots"
    changed = ("--set", "queue:invoices.max_active_leases=4", "--replications", "1", "--plot", str(plots))
    result = run("simulate", "run", path, *changed)
    assert "the p95 wait falls from 11 s to" in result.stdout
    drawn = sorted(plots.iterdir())
    assert [each.name for each in drawn] == [
        f"invoices-activity-{what}.svg" for what in ("causes", "waiting", "waits")
    ]
    for each in drawn:
        ElementTree.fromstring(each.read_text())


def test_json_has_the_same_facts(run: Run, path: str) -> None:
    result = run("simulate", path, "--workers", "3", "--replications", "2", "--json")
    facts = json.loads(result.stdout)
    assert facts["summary"].startswith("In invoices the p95 wait stays at 11 s")
    assert facts["changes"] == ["workers 3"]
    assert {"input_hash", "seed", "replications", "base", "changed", "warnings"} <= facts.keys()


def test_find_names_the_smallest_change(run: Run, path: str) -> None:
    target = "p95 wait in invoices <= 4s"
    result = run("simulate", "find", path, "--target", target, "--may", "queue:invoices.max_active_leases")
    assert result.exit_code == 0
    assert result.stdout.startswith("Change queue:invoices.max_active_leases from 2 to ")


def test_find_fails_where_nothing_is_enough(run: Run, path: str) -> None:
    result = run("simulate", "find", path, "--target", "p95 wait in invoices <= 4s", "--may", "workers")
    assert result.exit_code == 1
    assert "cannot be met" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--set", "queue:invoises.paused=true"), "did you mean invoices"),
        (("--set", "queue:invoices.max_active_leases=-3"), "max_active_leases"),
        (("--key", "tenant-b=2x"), "did you mean tenant-a"),
        (("--kill", "invoices"), "invoices@10m"),
        (("--tasks-max", "3"), "--tasks-max"),
    ],
)
def test_a_change_that_is_wrong_is_refused_before_anything_runs(
    run: Run, path: str, arguments: tuple[str, ...], named: str
) -> None:
    result = run("simulate", path, *arguments)
    assert result.exit_code == 2
    assert named in result.stderr
    assert result.stdout == ""


def test_a_file_that_is_missing_is_named(run: Run) -> None:
    result = run("simulate", "missing.toml")
    assert result.exit_code == 2
    assert "missing.toml cannot be read" in result.stderr
