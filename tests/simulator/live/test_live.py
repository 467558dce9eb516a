"""Forecasts from the state of a server: what drains, what never does, and how much is simulated for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock import assembly
from penstock.core.model import TaskKind
from penstock.errors import InvalidInput
from penstock.simulator.changes import Change, of_change_set, parse_setting, parse_workers
from penstock.simulator.live.fluid_scale import FluidScale, scale_for, shrunk
from penstock.simulator.live.forecast import Forecast, LiveForecast
from penstock.simulator.live.live_model import Given, LiveModel, live_model
from penstock.simulator.live.server_bodies import QueueBodies, ServerBodies
from penstock.simulator.measures import Measures
from penstock.simulator.model_file import generate
from penstock.simulator.run import Simulation
from penstock.simulator.workload import Workload
from tests.simulator.loads import START_MS, backlog, model, simulate, workers

NO_COUNTS: Mapping[str, Any] = {
    "ready_count": 0,
    "delayed_count": 0,
    "leased_count": 0,
    "added_last_minute": 0,
    "dispatched_last_minute": 0,
    "top_keys": [],
    "backlog_by_priority": [],
}


def queue_bodies(
    waiting: Mapping[str, int], running: int = 0, limits: Mapping[str, Any] | None = None, **counts: Any
) -> QueueBodies:
    """What the API shows of the queue `q` with so many waiting tasks of each key."""
    total = sum(waiting.values())
    keys = [
        {
            "fairness_key": key,
            "priority": 5,
            "weight": 1.0,
            "backlog_count": count,
            "dispatches_last_minute": 0.0,
        }
        for key, count in waiting.items()
    ]
    stats = {
        **NO_COUNTS,
        "ready_count": total,
        "leased_count": running,
        "top_keys": keys,
        "backlog_by_priority": [{"priority": 5, "backlog_count": total, "key_count": len(keys)}],
    }
    unserved = counts.pop("unserved", 0)
    series = counts.pop("series", {})
    return QueueBodies(
        "q",
        {
            "stats": {"activity_tasks": stats | counts, "workflow_tasks": NO_COUNTS},
            "admission": {
                "activity_tasks": {"unserved_ready_count": unserved},
                "workflow_tasks": {"unserved_ready_count": 0},
            },
        },
        {"activity": {}, "workflow": {}},
        {
            "activity": {"limits": {name: {"value": value} for name, value in (limits or {}).items()}},
            "workflow": {"limits": {}},
        },
        {"activity": series, "workflow": {}},
    )


def state(queue: QueueBodies, slots: int = 10, given: Given | None = None) -> LiveModel:
    worker = {"worker_id": "w", "task_queue": "q", "status": "active", "max_concurrent_activity_tasks": slots}
    shown = [worker] if slots else []
    return live_model(ServerBodies(START_MS, [queue], shown), given or Given(takes_ms=1_000))


def series(added: list[float], dispatched: list[float], running: list[float]) -> Mapping[str, Any]:
    """Samples of every ten seconds until now."""

    def points(values: list[float]) -> list[dict[str, Any]]:
        first = START_MS - 10_000 * len(values)
        return [{"points": [[first + 10_000 * place, value] for place, value in enumerate(values)]}]

    return {
        "resolution_seconds": 10,
        "metrics": {
            "added_per_second": points(added),
            "dispatched_per_second": points(dispatched),
            "running": points(running),
        },
    }


async def run(workload: Workload, _label: str) -> Measures:
    async with assembly.simulated(workload.start_ms) as host:
        return await Simulation(host, workload).run()


async def never(_workload: Workload, _label: str) -> Measures:
    raise AssertionError("a simulation was run")


async def forecast(of: LiveModel, *changes: Change, run: Any = run) -> Forecast:
    return await LiveForecast(of, changes).find(run, "test")


async def test_a_small_backlog_is_simulated_task_by_task() -> None:
    found = await forecast(state(queue_bodies({"a": 90, "b": 10}, dispatched_last_minute=60)))
    [queue] = found.base
    assert found.is_exact
    assert queue.gone_ms.expected == pytest.approx(9_300, rel=0.15)
    assert queue.keys["b"].expected == pytest.approx(2_000, rel=0.5), (
        "fair: a tenth of the tasks, half of the slots"
    )
    assert found.summary.startswith("The backlog of 100 tasks in q is gone in 9.")
    assert "What limits it: the 10 slots of workers of q." in found.summary


async def test_a_hundred_thousand_tasks_are_forecast_by_a_smaller_load_of_the_same_shape() -> None:
    counts: list[int] = []

    async def counted(workload: Workload, label: str) -> Measures:
        counts.append(len(workload.arrivals))
        return await run(workload, label)

    of = state(queue_bodies({"a": 100_000}, running=40, dispatched_last_minute=2_400), slots=40)
    [queue] = (await forecast(of, run=counted)).base
    assert sum(counts) <= 2_000
    assert queue.gone_ms.expected == pytest.approx(2_500_000, rel=0.1)


async def test_what_is_shrunk_takes_as_long_as_the_whole() -> None:
    whole = model(
        arrivals=[backlog(900, "a"), backlog(300, "b", takes="3s")],
        workers=[workers(count=2, slots=20)],
        queues={"q": {"max_active_leases": 16, "weights": {"b": 2}}},
    )

    async def cleared(scale: FluidScale) -> float:
        workload = generate(shrunk(whole, scale, 600_000), 1, 10_000)
        at_ms = (await simulate(workload)).measures.queue(("q", TaskKind.ACTIVITY)).cleared_at_ms
        assert at_ms is not None
        return at_ms * scale.time

    assert await cleared(FluidScale(3.0, 2)) == pytest.approx(await cleared(FluidScale()), rel=0.1)


def test_small_caps_are_not_divided() -> None:
    of = model(
        arrivals=[backlog(100_000)], workers=[workers(100, 100)], queues={"q": {"max_active_leases": 5}}
    )
    scale = scale_for([of], 600_000)
    assert scale.size == 1
    assert shrunk(of, scale, 600_000).queues == {"q": {"max_active_leases": 5}}


async def test_arrivals_beyond_the_slots_are_said_at_once_not_to_drain() -> None:
    of = state(queue_bodies({"a": 50}), given=Given(1_000, per_minute=700))
    found = await forecast(of, run=never)
    assert found.summary == (
        "The backlog of 50 tasks in q will not drain: 700 arrive a minute, and the 10 slots of workers of q allow "
        "600; it grows by 100 a minute."
    )
    changed = await forecast(of, parse_workers("q=3"))
    assert changed.changed[0].gone_ms.expected is not None
    assert "(without the change: does not drain)" in changed.summary


@pytest.mark.parametrize(
    ("bodies", "slots", "said"),
    [
        (queue_bodies({"a": 5}), 0, "the 0 slots of workers of q allow 0"),
        (queue_bodies({"a": 5}, unserved=2), 1, "no worker takes 2 of them"),
        (queue_bodies({"a": 5}, unserved=5), 1, "no worker takes 5 of them"),
        (queue_bodies({"a": 5}, limits={"paused": True}), 1, "dispatches while it is paused of q allow 0"),
        (queue_bodies({"a": 5}, limits={"max_active_leases_per_queue": 0}), 1, "max_active_leases_per_queue"),
    ],
)
async def test_what_nobody_may_take_does_not_drain(bodies: QueueBodies, slots: int, said: str) -> None:
    assert said in (await forecast(state(bodies, slots))).summary


async def test_nothing_waits() -> None:
    assert (
        await forecast(state(queue_bodies({})), run=never)
    ).summary == "No task waits, so nothing has to drain."


def test_durations_and_arrivals_are_those_of_the_last_minutes() -> None:
    """Twenty tasks run at any time and ten are dispatched a second, so one takes two seconds."""
    samples = series([5.0] * 12, [10.0] * 12, [20.0] * 12)
    [flow] = state(queue_bodies({"a": 9}, series=samples), given=Given()).flows
    assert flow.mean_ms == pytest.approx(2_000)
    assert flow.per_minute == pytest.approx(300)
    assert 0 < flow.arrivals_within < 0.1


def test_a_burst_is_not_expected_again_and_is_named() -> None:
    samples = series([1.0] * 20 + [1_000.0] + [1.0] * 3, [2.0] * 24, [4.0] * 24)
    found = state(queue_bodies({"a": 9_000}, series=samples), given=Given())
    assert found.flows[0].per_minute == pytest.approx(60)
    assert "10,000 tasks came into q in a burst" in found.notes[0]


def test_unknown_durations_are_asked_for() -> None:
    with pytest.raises(InvalidInput, match="give --takes"):
        state(queue_bodies({"a": 5}), given=Given())


def test_a_change_set_is_a_change_of_its_settings() -> None:
    items: list[dict[str, Any]] = [
        {"target": "queue:q", "setting": "max_active_leases", "fairness_key": None, "after": 5},
        {"target": "queue:q", "setting": "fairness_weight_override", "fairness_key": "a.b", "after": 3.0},
        {"target": "queue:q", "setting": "rps_limit", "fairness_key": "a", "after": 2.0},
        {"target": "namespace", "setting": "max_cost_per_minute", "fairness_key": None, "after": 7},
    ]
    texts = ("queue:q.max_active_leases=5", "queue:q.weights.a.b=3.0", "queue:q.keys.a.rps_limit=2.0")
    expected = [parse_setting(each) for each in (*texts, "namespace.max_cost_per_minute=7")]
    assert of_change_set(items) == expected
