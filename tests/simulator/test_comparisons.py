"""Comparisons and searches: what a change does, in words and figures, and the smallest one that is enough."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.errors import InvalidInput
from penstock.simulator.changes import parse_setting
from penstock.simulator.comparison import SimulationComparison, SimulationResult, wait_text
from penstock.simulator.load_source import ModelLoad
from penstock.simulator.measures import Measures
from penstock.simulator.model_file import ModelFile, generate
from penstock.simulator.search.knobs import parse_knob
from penstock.simulator.search.search import Answer, Search
from penstock.simulator.search.targets import parse_target
from penstock.simulator.workload import Workload
from tests.simulator.loads import backlog, model, simulate, workers

CAPPED = {
    "arrivals": [backlog(24, "big", takes={"p50": "2s", "p90": "5s"}), backlog(4, "small", takes="1s")],
    "workers": [workers(slots=20)],
    "queues": {"q": {"max_active_leases": 2}},
}
RAISED = "queue:q.max_active_leases=8"


async def run(workload: Workload, _: str) -> Measures:
    return (await simulate(workload)).measures


async def compared(*changes: str, most: int = 3, **fields: Any) -> SimulationResult:
    comparison = SimulationComparison(
        ModelLoad(model(**(CAPPED | fields))),
        [parse_setting(each) for each in changes],
        seed=1,
        tasks_max=1_000,
    )
    await comparison.replicate(run, most)
    return comparison.result("test")


async def found(of: ModelFile, target: str, *knobs: str) -> Answer:
    load = ModelLoad(of)
    may = [parse_knob(load.workload(1, 1_000), each) for each in knobs]
    return await Search(load, parse_target(target), may, run, seed=1, tasks_max=1_000).find()


async def test_a_raised_cap_shortens_the_wait_and_the_sentence_says_by_how_much() -> None:
    result = await compared(RAISED)
    before, after = result.base[0], result.changed[0]
    assert after.waits.p95.median < before.waits.p95.median / 2
    assert result.summary.startswith(f"In q the p95 wait falls from {wait_text(before.waits.p95.median)} to ")
    assert after.waits.p95.least <= after.waits.p95.median <= after.waits.p95.greatest
    assert set(before.waiting_by_cause_s) == {"lease cap of the queue"}


async def test_a_change_without_effect_is_called_none() -> None:
    result = await compared("queue:q.max_dispatches_per_minute=100000", most=1)
    assert "stays at" in result.summary
    assert result.base == result.changed


async def test_the_same_input_has_the_same_hash_and_output() -> None:
    one, other = await compared(RAISED, most=2), await compared(RAISED, most=2)
    assert msgspec.json.encode(one) == msgspec.json.encode(other)
    assert (await compared("queue:q.max_active_leases=9", most=2)).input_hash != one.input_hash


async def test_a_workload_without_luck_needs_no_more_than_the_least_replications() -> None:
    assert (await compared(most=10, arrivals=[backlog(5, takes="2s")])).replications == 3


async def test_tasks_that_never_go_are_named() -> None:
    result = await compared(workers=[], most=1)
    assert "28 tasks never get their turn" in result.summary
    assert result.base[0].left_waiting.median == 28


async def test_the_smallest_cap_that_meets_a_target_is_found() -> None:
    of = model(**CAPPED)
    answer = await found(of, "p95 wait in q <= 10s", "queue:q.max_active_leases")
    [change] = answer.changes
    assert answer.is_met
    value = int(str(change).rpartition("=")[2])
    less = await found(
        model(**(CAPPED | {"queues": {"q": {"max_active_leases": value - 1}}})),
        "p95 wait in q <= 10s",
        "workers",
    )
    assert less.before_ms > 10_000, "one less does not meet it"


async def test_what_is_met_already_needs_no_change() -> None:
    answer = await found(model(**CAPPED), "p50 wait of key small in q <= 1h", "workers")
    assert (answer.is_met, answer.changes, answer.trials) == (True, (), 1)


async def test_workers_do_not_help_where_a_cap_binds() -> None:
    answer = await found(model(**CAPPED), "p95 wait in q <= 1s", "workers")
    assert not answer.is_met
    assert "cannot be met by changing workers" in answer.sentence


async def test_two_knobs_are_turned_where_none_alone_is_enough() -> None:
    of = model(
        arrivals=[backlog(40, takes="2s")], workers=[workers(slots=2)], queues={"q": {"max_active_leases": 2}}
    )
    answer = await found(of, "backlog of q gone within 10s", "workers", "queue:q.max_active_leases")
    assert answer.is_met
    assert len(answer.changes) == 2
    assert answer.after_ms <= 10_000


@pytest.mark.parametrize(
    "text", ["fast", "p95 wait in q", "p42 wait in q <= 1s", "p95 wait in q <= soon", ""]
)
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_target(text)


@pytest.mark.parametrize("text", ["queue:q.max_dispatches_per_minute", "queue:q.paused", "workers:r", "luck"])
def test_a_knob_that_cannot_be_raised_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_knob(generate(model(**CAPPED), 1, 1_000), text)
