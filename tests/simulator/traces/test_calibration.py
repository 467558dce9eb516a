"""Replays of recorded loads: whether they can be trusted, and what a change does to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock import assembly
from penstock.core.model import TaskKind
from penstock.errors import InvalidInput
from penstock.simulator.changes import Change, parse_key_load, parse_kill, parse_setting, parse_workers
from penstock.simulator.comparison import SimulationComparison, SimulationResult
from penstock.simulator.measures import Measures
from penstock.simulator.run import Simulation
from penstock.simulator.traces.calibration import calibrate
from penstock.simulator.traces.trace_file import Trace
from penstock.simulator.traces.trace_load import TraceLoad
from penstock.simulator.traces.workload_changes import changed_workload
from penstock.simulator.workload import (
    AttemptOutcome,
    SimulatedArrival,
    WorkerPool,
    Workload,
)
from penstock.wire.limits.limit_paths import LimitSettings, LimitTarget
from tests.simulator.loads import backlog, workers
from tests.simulator.traces.recorded import load, trace_of

TWO_KEYS = {
    "duration": "2m",
    "arrivals": [
        {"queue": "q", "key": "a", "per_minute": 40, "takes": {"p50": "1s", "p90": "3s"}},
        backlog(60, "b", takes="2s"),
    ],
    "workers": [workers(slots=3)],
    "queues": {"q": {"max_active_leases": 2}},
}


@pytest.fixture
async def recorded(tmp_path: Path) -> Trace:
    return await trace_of(load(**TWO_KEYS), tmp_path / "x.trace", (0, 180_000))


async def run(workload: Workload, _label: str) -> Measures:
    async with assembly.simulated(workload.start_ms) as host:
        return await Simulation(host, workload).run()


async def rehearsed(trace: Trace, *changes: Change) -> SimulationResult:
    of = TraceLoad.of(trace, 1_000)
    comparison = SimulationComparison(of, changes, seed=1, tasks_max=1_000)
    await comparison.replicate(run, 10)
    return comparison.result("test", of.warnings, calibrate(of, comparison.runs[0][0]))


async def test_a_recorded_window_is_reproduced_and_a_change_is_answered(recorded: Trace) -> None:
    result = await rehearsed(recorded, parse_setting("queue:q.max_active_leases=3"))
    assert result.calibration is not None
    assert result.calibration.is_met
    assert result.calibration.open_share == 1
    (queue,) = result.calibration.queues
    assert queue.recorded_grants == queue.replayed_grants > 60
    assert [(each.key, each.recorded_p95_ms == each.replayed_p95_ms > 0) for each in queue.keys] == [
        ("a", True),
        ("b", True),
    ]
    assert result.summary.startswith("In q the p95 wait falls")
    assert result.replications == 1, "a replay is not random"


async def test_the_same_trace_and_change_have_the_same_hash_and_answer(recorded: Trace) -> None:
    one = await rehearsed(recorded, parse_workers("q=2"))
    assert one == await rehearsed(recorded, parse_workers("q=2"))
    assert one.input_hash != (await rehearsed(recorded, parse_workers("q=3"))).input_hash


async def test_a_replay_that_does_not_meet_the_record_begins_with_do_not_trust_this(recorded: Trace) -> None:
    """As if workers that the trace does not know had been there."""
    missing = ("the slots of workers that are not registered any more: w9",)
    fewer = tuple(replace(each, slots=1) for each in recorded.tail.workers)
    result = await rehearsed(replace(recorded, tail=replace(recorded.tail, missing=missing, workers=fewer)))
    assert result.calibration is not None
    assert not result.calibration.is_met
    (queue,) = result.calibration.queues
    assert result.summary.startswith(
        f"Do not trust this: q had {queue.recorded_grants} grants, and {queue.replayed_grants} in the replay; "
        "the p95 wait of key a in q was "
    )
    assert f"The trace lacks {missing[0]}." in result.summary


async def test_a_window_whose_clock_was_set_back_is_never_trusted(recorded: Trace) -> None:
    stepped = replace(recorded, tail=replace(recorded.tail, clock_steps=(recorded.head.from_ms + 1,)))
    result = await rehearsed(stepped)
    assert result.summary.startswith(
        "Do not trust this: the server's clock was set back 1 times in the window."
    )


async def test_a_window_in_which_nothing_was_granted_proves_nothing(tmp_path: Path) -> None:
    of = load(arrivals=[backlog(3, takes="2m")], workers=[workers(slots=3)])
    result = await rehearsed(await trace_of(of, tmp_path / "x.trace", (60_000, 90_000)))
    assert result.summary.startswith(
        "Do not trust this: no task was granted in the window, so nothing can be"
    )


# ── Changes of a recorded workload ──────────────────────────────────────────────────────────────────────────────


def arrival(at_ms: int, key: str = "a", after: int | None = None) -> SimulatedArrival:
    return SimulatedArrival(at_ms, "q", "t", (AttemptOutcome(10),), key=key, after=after)


Q = LimitTarget("queue", "q")
ACTIVITIES = {"task_queue_type": "activity"}
BASE = Workload(
    [arrival(0), arrival(5, "b"), arrival(10, "other", after=0)],
    (
        WorkerPool("q", 1, 4),
        WorkerPool("q", 1, 4, leaves_ms=50),
        WorkerPool("q", 1, 9),
        WorkerPool("r", 1, 1),
    ),
    (
        LimitSettings(Q, {"max_running": 5, "weights": {"a": 2, "b": 3}} | ACTIVITIES),
        LimitSettings(Q, {"max_active_leases": 7, "weights": {"a": 9}} | ACTIVITIES, 30),
    ),
    until_ms=1_000,
)


def test_a_setting_is_in_force_from_the_beginning_and_no_recorded_change_undoes_it() -> None:
    after = changed_workload(BASE, [parse_setting("queue:q.max_active_leases=1")], 0)
    assert after.limits == (
        LimitSettings(Q, {"weights": {"a": 2, "b": 3}} | ACTIVITIES),
        LimitSettings(Q, {"weights": {"a": 9}} | ACTIVITIES, 30),
        LimitSettings(Q, {"max_active_leases": 1} | ACTIVITIES),
    )
    weighted = changed_workload(BASE, [parse_setting("queue:q.weights.a=4")], 0)
    assert [each.settings.get("weights") for each in weighted.limits] == [{"b": 3}, {}, {"a": 4}]


def test_a_number_of_workers_is_like_most_of_them_and_a_factor_keeps_when_they_came() -> None:
    counted = changed_workload(BASE, [parse_workers("q=7")], 0).pools
    assert [(each.queue, each.count, each.slots) for each in counted] == [("r", 1, 1), ("q", 7, 4)]
    doubled = changed_workload(BASE, [parse_workers("q=2x")], 0).pools
    assert [(each.count, each.leaves_ms) for each in doubled if each.queue == "q"] == [
        (2, None),
        (2, 50),
        (2, None),
    ]
    halved = changed_workload(BASE, [parse_workers("0.5x")], 0).pools
    assert sum(each.count for each in halved) == 2


def test_workers_that_are_killed_die_unless_they_have_left_before() -> None:
    after = changed_workload(BASE, [parse_kill("q@100ms")], 0).pools
    assert [(each.queue, each.leaves_ms, each.dies_ms) for each in after] == [
        ("q", None, 100),
        ("q", 50, None),
        ("q", None, 100),
        ("r", None, None),
    ]


def test_a_key_that_sends_twice_as_much_sends_what_its_ends_cause_twice() -> None:
    after = changed_workload(BASE, [parse_key_load("a=2x")], 0).arrivals
    assert [(each.key, each.after) for each in after] == [
        ("a", None),
        ("a", None),
        ("b", None),
        ("other", 0),
        ("other", 1),
    ]
    gone = changed_workload(BASE, [parse_key_load("a=0x")], 0).arrivals
    assert [each.key for each in gone] == ["b"]
    caused = changed_workload(BASE, [parse_key_load("other=3x")], 0).arrivals
    assert [(each.key, each.after) for each in caused][2:] == [("other", 0)] * 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (parse_setting("queue:p.max_active_leases=1"), "no queue 'p'"),
        (parse_workers("p=1"), "no queue with workers 'p'"),
        (parse_workers("3"), "workers of 2 queues"),
        (parse_key_load("c=2x"), "no fairness key 'c'"),
        (parse_kill("p@1s"), "no queue with workers 'p'"),
    ],
)
def test_what_the_trace_does_not_have_is_refused(change: Change, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        changed_workload(BASE, [change], 0)


def test_a_recorded_load_of_too_many_tasks_is_refused(recorded: Trace) -> None:
    with pytest.raises(InvalidInput, match=r"more than 10\. Allow more with --tasks-max"):
        TraceLoad.of(recorded, 10)
    assert TaskKind.ACTIVITY in {each.kind for each in TraceLoad.of(recorded, 1_000).replay.workload.arrivals}
