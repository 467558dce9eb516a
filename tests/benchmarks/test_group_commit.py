"""Several runs as one report: the newest of each part, and of a part the newest of each row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.group_commit import NothingToMerge, merged, read
from benchmarks.targets import Verdict, judged
from tests.benchmarks.test_targets import figure


def report(run: str, *figures: dict[str, Any], **sections: Any) -> dict[str, Any]:
    peers = {"systems": [], "missing": [], "figures": [*figures]}
    return {"run": run, "environment": {"date": run}, "peers": peers} | sections


def medians(whole: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(row["system"], row["measure"]): row["value"]["median"] for row in whole["peers"]["figures"]}


def test_systems_that_were_measured_one_after_the_other_stand_in_one_report():
    ours, peer = figure("penstock, postgres", "tasks", 2400.0), figure("pgqueuer", "tasks", 800.0)
    whole = merged([report("1", ours), report("2", peer)])
    assert medians(whole) == {("penstock, postgres", "tasks"): 2400.0, ("pgqueuer", "tasks"): 800.0}
    first = judged(whole)[0]
    assert first.verdict is Verdict.GOAL
    assert first.ratio is not None
    assert first.ratio.note == "sides of two runs"


def test_what_was_measured_again_takes_the_place_of_the_old_whatever_the_order():
    old, new = (
        report("1", figure("a", "tasks", 1.0), figure("a", "drain", 5.0)),
        report("2", figure("a", "tasks", 2.0)),
    )
    for order in ([old, new], [new, old]):
        assert medians(merged(order)) == {("a", "tasks"): 2.0, ("a", "drain"): 5.0}


def test_a_row_says_of_which_run_it_is_also_after_another_merge():
    whole = merged([merged([report("1", figure("a", "tasks", 1.0))]), report("2", figure("b", "tasks", 1.0))])
    assert {row["system"]: row["run"] for row in whole["peers"]["figures"]} == {"a": "1", "b": "2"}


def test_a_part_that_a_later_run_left_out_stays():
    old = report("1", scaling=[{"store": "sqlite", "name": "x"}], admission={"ratios": [{"store": "sqlite"}]})
    whole = merged([old, report("2", scaling=[], admission=None)])
    assert [row["name"] for row in whole["scaling"]] == ["x"]
    assert len(whole["admission"]["ratios"]) == 1


def test_stores_that_were_measured_apart_stand_side_by_side():
    rows = [{"store": store, "name": "activity"} for store in ("sqlite", "postgres")]
    whole = merged([report("1", workloads=rows[:1]), report("2", workloads=rows[1:])])
    assert [row["store"] for row in whole["workloads"]] == ["sqlite", "postgres"]


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / f"{content['run']}.json"
    path.write_text(json.dumps(content))
    return path


def test_of_a_folder_only_full_runs_are_read(tmp_path: Path):
    write(tmp_path, report("1"))
    quick = write(tmp_path, report("2") | {"quick": True})
    write(tmp_path, report("merged") | {"is_merged": True})
    assert [each["run"] for each in read([tmp_path])] == ["1"]
    assert [each["run"] for each in read([quick])] == ["2"]


def test_no_results_and_broken_ones_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(NothingToMerge, match="no results"):
        read([tmp_path])
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert main(["--merge", str(broken)]) == 2
    assert f"{broken} is not a result" in capsys.readouterr().err


def test_one_report_is_printed_kept_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    full = {
        "about": "",
        "cpu_ms": {},
        "others_percent": None,
        "load": {"median": 1.0, "min": 1.0, "max": 1.0},
    }
    ours = figure("penstock, postgres", "tasks", 2400.0, **full)
    paths = [
        write(tmp_path, report("1", ours)),
        write(tmp_path, report("2", figure("pgqueuer", "tasks", 800.0, **full))),
    ]
    target = tmp_path / "made" / "whole.json"
    options = ["--json", str(target), "--plots", str(tmp_path / "plots")]
    assert main(["--merge", *map(str, paths), *options]) == 0
    assert "goal met" in capsys.readouterr().out
    kept = json.loads(target.read_text())
    assert kept["targets"][0]["verdict"] == "goal met"
    page = target.with_suffix(".md").read_text()
    assert "\n\n### Targets\n\n| #" in page
    assert "| standalone tasks end to end, one call each, postgres " in page
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["tasks.svg"]
