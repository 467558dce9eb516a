"""What a report says of the targets: which ratio counts, and when a floor or a goal is met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import JUDGED
from benchmarks.parts import BY_NAME
from benchmarks.peer_measures import LESS, MORE
from benchmarks.targets import LINES, Bounds, Judged, Verdict, as_rows, by_target, judged


def figure(system: str, measure: str, median: float, **changes: Any) -> dict[str, Any]:
    plain = {
        "system": system,
        "measure": measure,
        "unit": "per s",
        "better": MORE,
        "repetitions": 3,
        "value": {"median": median, "min": median, "max": median},
    }
    return plain | changes


def lines(number: int, *figures: dict[str, Any], **sections: Any) -> list[Judged]:
    report = {"peers": {"figures": figures}} | sections
    return [each for each in judged(report) if each.line.number == number]


def ratio_row(store: str, name: str, median: float, **more: Any) -> dict[str, Any]:
    rate = {"median": median, "min": median, "max": median}
    return {"store": store, "name": name, "batch": 1, "rate": rate, "target": 0.9, **more}


@pytest.mark.parametrize(
    ("ratio", "better", "verdict"),
    [
        (2.5, MORE, Verdict.GOAL),
        (2.49, MORE, Verdict.FLOOR),
        (1.3, MORE, Verdict.FLOOR),
        (1.29, MORE, Verdict.MISSED),
        (0.5, LESS, Verdict.GOAL),
        (0.51, LESS, Verdict.FLOOR),
        (0.8, LESS, Verdict.FLOOR),
        (0.81, LESS, Verdict.MISSED),
        (None, MORE, Verdict.UNKNOWN),
    ],
)
def test_a_goal_or_a_floor_is_met_when_it_is_reached(ratio: float | None, better: str, verdict: Verdict):
    bounds = Bounds(1.3, 2.5) if better == MORE else Bounds(0.8, 0.5, LESS)
    assert bounds.verdict(ratio) is verdict


def test_there_are_all_22_targets_in_order():
    numbers = [line.number for line in LINES]
    assert numbers == sorted(numbers)
    assert set(numbers) == set(range(1, 23))


def test_every_floor_is_easier_to_reach_than_its_goal():
    for line in LINES:
        bounds = line.bounds
        assert bounds.verdict(bounds.floor) is not Verdict.MISSED
        assert (bounds.goal > bounds.floor) == (bounds.better == MORE), line


def test_ours_is_divided_by_the_peer_of_the_line():
    ours, peer = figure("penstock, postgres", "tasks", 2000.0), figure("pgqueuer", "tasks", 800.0)
    (only,) = lines(1, ours, peer)
    assert only.ratio is not None
    assert only.ratio.value == 2.5
    assert only.verdict is Verdict.GOAL
    assert "2,000 / 800 per s" in only.ratio.sides


def test_where_a_peer_may_choose_its_best_setting_counts():
    ours = figure("penstock, sqlite", "workflows_1", 400.0)
    slow = figure("dbos, sqlite", "workflows_1", 50.0)
    fast = figure("dbos, postgres", "workflows_1", 100.0)
    (only,) = lines(9, ours, slow, fast)
    assert only.ratio is not None
    assert only.ratio.value == 4.0


def test_the_latency_of_a_peer_may_be_that_of_another_way_to_do_it():
    ours = figure("penstock, sqlite", "workflows_1_p99", 100.0, better=LESS, unit="ms")
    queued = figure("dbos, postgres", "queued_1_p99", 1000.0, better=LESS, unit="ms")
    verdicts = [each.verdict for each in lines(12, ours, queued)]
    assert verdicts == [Verdict.UNKNOWN, Verdict.GOAL]


def test_what_was_not_measured_is_said_and_not_judged():
    assert {each.verdict for each in judged({})} == {Verdict.UNKNOWN}
    rows = as_rows(judged({}))
    assert {row["verdict"] for row in rows} == {"not measured in this run"}
    assert {row["ratio"] for row in rows} == {None}


def test_a_peer_that_measured_nothing_is_not_divided_by():
    ours, peer = figure("penstock, postgres", "tasks", 2000.0), figure("pgqueuer", "tasks", 0.0)
    (only,) = lines(1, ours, peer)
    assert only.ratio is None


def test_a_target_is_as_good_as_the_worst_of_its_lines():
    ours = figure("penstock, sqlite", "tasks", 1000.0)
    lines_of_7 = lines(7, ours, figure("dramatiq", "tasks", 100.0), figure("celery", "tasks", 500.0))
    assert [each.verdict for each in lines_of_7] == [Verdict.GOAL, Verdict.MISSED]
    assert by_target(lines_of_7) == {7: Verdict.MISSED}


def test_too_few_repetitions_and_sides_of_two_runs_are_said():
    ours = figure("penstock, postgres", "tasks", 2000.0, repetitions=1, run="monday")
    peer = figure("pgqueuer", "tasks", 800.0, run="tuesday")
    (only,) = lines(1, ours, peer)
    assert only.ratio is not None
    assert only.ratio.note == "1 repetition, sides of two runs"


def test_of_ratios_to_itself_the_worst_one_counts():
    rows = [
        ratio_row("sqlite", "backlog 100,000 to 1,000, 100 keys", 0.95),
        ratio_row("postgres", "backlog 100,000 to 1,000, 100 keys", 0.85),
        ratio_row("sqlite", "backlog 1,000,000 to 1,000, 100 keys", 0.5),
    ]
    found = lines(15, dispatch_rates={"ratios": rows})
    assert [each.verdict for each in found] == [Verdict.FLOOR, Verdict.MISSED]
    assert found[0].ratio is not None
    assert found[0].ratio.value == 0.85


def test_limits_count_where_all_are_set_and_only_by_what_a_claim_takes():
    fair = ratio_row("sqlite", "fairness on to off, 100 keys, backlog 100,000", 0.95)
    limits = [
        ratio_row("sqlite", "", 0.9, part="claim"),
        ratio_row("sqlite", "", 0.2, part="claim and complete"),
        ratio_row("sqlite", "", 0.1, part="claim") | {"target": None},
    ]
    found = lines(20, dispatch_rates={"ratios": [fair]}, admission={"ratios": limits})
    assert [each.verdict for each in found] == [Verdict.GOAL, Verdict.GOAL]


def test_a_long_history_is_compared_with_one_of_ten_events():
    measures = {"the same, 10,000 to 10 events: time": 1.3, "the same, 10,000 to 100 events: time": 9.0}
    rows = [
        {"system": "penstock, sqlite", "measure": name, "value": {"median": value}}
        for name, value in measures.items()
    ]
    (only,) = lines(21, sdk={"figures": rows})
    assert only.verdict is Verdict.FLOOR


def test_crowds_count_where_they_are_worst():
    rows = [
        ratio_row("sqlite", "activities", 0.95, crowd="idle pollers", size=2000),
        ratio_row("postgres", "workflows", 0.7, crowd="idle pollers", size=2000),
    ]
    verdicts = {each.line.measure: each.verdict for each in lines(22, beside=rows)}
    assert verdicts["rate beside 2,000 idle pollers"] is Verdict.MISSED
    assert verdicts["rate beside 100,000 sleeping timers"] is Verdict.UNKNOWN


class Asked(dict[str, object]):
    """A report without anything in it, and what was looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_asked: set[str] = set()

    def get(self, key: str, default: object = None) -> object:
        self.keys_asked.add(key)
        return default


def test_the_parts_that_make_bench_runs_are_those_in_which_targets_are_measured():
    report = Asked()
    assert {each.verdict for each in judged(report)} == {Verdict.UNKNOWN}
    assert report.keys_asked == {BY_NAME[name].key for name in JUDGED - {"profile"}}
    assert "--only targets" in (Path(__file__).parents[2] / "Makefile").read_text()
