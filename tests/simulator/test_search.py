"""Searches: what cannot be met is said at once, a recorded load is searched like a model, and what the change costs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.core.model import TaskKind
from penstock.errors import InvalidInput
from penstock.simulator.balance import FlowBalance
from penstock.simulator.changes import parse_setting
from penstock.simulator.comparison import SimulationComparison
from penstock.simulator.load_source import LoadSource, ModelLoad
from penstock.simulator.measures import Measures
from penstock.simulator.search.consequences import agreement, cost, next_limit
from penstock.simulator.search.knobs import parse_knob
from penstock.simulator.search.search import TRIALS_MAX, Answer, Search
from penstock.simulator.search.targets import parse_target
from penstock.simulator.traces.trace_load import TraceLoad
from penstock.simulator.workload import Workload
from tests.simulator.loads import START_MS, backlog, model, simulate, workers
from tests.simulator.traces.recorded import load, trace_of

Q = ("q", TaskKind.ACTIVITY)
CAPPED: dict[str, Any] = {
    "arrivals": [backlog(24, "big", takes="2s"), backlog(3, "small", takes="1s")],
    "workers": [workers(slots=10)],
    "queues": {"q": {"max_active_leases": 2}},
}


async def run(workload: Workload, _label: str) -> Measures:
    return (await simulate(workload)).measures


async def never(_workload: Workload, _label: str) -> Measures:
    raise AssertionError("a simulation was run")


async def found(of: LoadSource, target: str, *knobs: str, run: Any = run) -> Answer:
    may = [parse_knob(of.workload(1, 1_000), each) for each in knobs]
    return await Search(of, parse_target(target), may, run, seed=1, tasks_max=1_000).find()


@pytest.mark.parametrize(
    ("fields", "target", "why"),
    [
        (
            {"queues": {"q": {"max_dispatches_per_minute": 5}}},
            "backlog of q gone within 2m",
            "the 5 dispatches per minute of q allow 5 tasks a minute, with which it takes 5 min 24 s",
        ),
        (
            {
                "queues": {"q": {"dispatch_budget_group": "g"}},
                "groups": {"g": {"max_dispatches_per_minute": 5}},
            },
            "backlog of q gone by 09:02",
            "the 5 dispatches per minute of the group g",
        ),
        (
            {
                "arrivals": [{"queue": "q", "per_minute": 50, "takes": "30s"}],
                "queues": {"q": {"max_running": 5}},
            },
            "p95 wait in q <= 30s",
            "the 5 places under max_running of q allow 10",
        ),
    ],
)
async def test_what_no_value_can_meet_is_said_without_a_simulation(
    fields: dict[str, Any], target: str, why: str
) -> None:
    of = ModelLoad(model(**(CAPPED | fields | {"duration": "10m", "start": "2026-01-05T09:00:00Z"})))
    answer = await found(of, target, "workers", run=never)
    assert not answer.is_met
    assert answer.trials == 0
    assert why in answer.sentence


async def test_a_recorded_load_is_searched_like_a_model(tmp_path: Path) -> None:
    trace = await trace_of(load(**CAPPED), tmp_path / "x.trace", (0, 60_000))
    of = TraceLoad.of(trace, 1_000)
    answer = await found(of, "backlog of q gone within 14s", "queue:q.max_active_leases")
    assert [str(each) for each in answer.changes] == ["queue:q.max_active_leases=4"]
    assert answer.trials <= TRIALS_MAX
    assert "the 4 places under max_active_leases of q" in next_limit(
        of.with_changes(answer.changes).workload(1, 1_000), Q
    )


async def test_the_answer_says_who_waits_longer_and_whether_other_seeds_agree() -> None:
    lowered = [parse_setting("queue:q.max_active_leases=1")]
    comparison = SimulationComparison(ModelLoad(model(**CAPPED)), lowered, seed=1, tasks_max=99)
    await comparison.replicate(run, 1)
    result, runs = comparison.result("test"), comparison.runs[1] * 2
    assert cost(parse_target("p95 wait of small in q <= 2s"), result).startswith(
        "It costs others: big in q waits 1"
    )
    assert cost(parse_target("p95 wait in q <= 2s"), result) == "Nobody waits noticeably longer."
    assert agreement(parse_target("p95 wait in q <= 1h"), Q, runs) == "All 2 replications meet it."
    assert agreement(parse_target("p95 wait in q <= 1s"), Q, runs).startswith("Only 0 of 2 replications")


def test_a_time_of_day_is_the_next_one_in_utc() -> None:
    assert parse_target("backlog of q gone by 09:03").at_start(START_MS).most_ms == 180_000
    assert parse_target("backlog of q gone by 09:00").at_start(START_MS).most_ms == 24 * 3_600_000
    at = datetime.fromtimestamp(START_MS / 1000 + 60, UTC).isoformat()
    assert parse_target(f"backlog of q gone by {at}").at_start(START_MS).most_ms == 60_000


@pytest.mark.parametrize("text", ["backlog of q gone by noon", "backlog of q gone by 25:00"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is no time"):
        parse_target(text)


def test_a_time_that_has_passed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="before the load begins"):
        parse_target("backlog of q gone by 2020-01-01T00:00:00Z").at_start(START_MS)


def test_queues_of_a_group_share_what_it_has() -> None:
    of = model(
        arrivals=[
            {"queue": "q", "per_minute": 30, "takes": "1s"},
            {"queue": "r", "per_minute": 40, "takes": "1s"},
        ],
        workers=[workers(slots=10), workers(slots=10) | {"queue": "r"}],
        queues={"q": {"dispatch_budget_group": "g"}, "r": {"dispatch_budget_group": "g"}},
        groups={"g": {"max_dispatches_per_minute": 60}},
    )
    balance = FlowBalance.of_model(of)
    assert balance.binding(Q)[0][1] == pytest.approx(20), "what the other queue leaves"
    assert [str(each) for each in balance.overloads()] == [
        "the group g will not keep up: what arrives needs 70 dispatches per minute, and there are 60."
    ]
