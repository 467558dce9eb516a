"""Small workloads, and runs of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from penstock import assembly
from penstock.simulator.measures import Measures
from penstock.simulator.model_file import ModelFile, generate
from penstock.simulator.run import Simulation
from penstock.simulator.workload import (
    AttemptOutcome,
    SimulatedArrival,
    WorkerPool,
    Workload,
)
from penstock.wire.limits.limit_paths import LimitSettings, LimitTarget
from penstock.wire.request_parser import parse_strict

START_MS = 1_767_603_600_000
"""2026-01-05T09:00:00Z."""
QUEUE = LimitTarget("queue", "q")
KEYS = ("", "a", "b")


def model(**fields: Any) -> ModelFile:
    """A model as its file would give it."""
    return parse_strict(fields, ModelFile)


def backlog(count: int, key: str = "", takes: Any = 1, **fields: Any) -> dict[str, Any]:
    """As many tasks at once."""
    return {"queue": "q", "key": key, "count": count, "takes": takes} | fields


def workers(count: int = 1, slots: int = 1, **fields: Any) -> dict[str, Any]:
    return {"queue": "q", "count": count, "slots": slots} | fields


def workload(
    arrivals: Sequence[SimulatedArrival],
    pools: Sequence[WorkerPool],
    limits: Sequence[LimitSettings] = (),
    until_ms: int = 10**9,
) -> Workload:
    return Workload(
        sorted(arrivals, key=lambda each: each.at_ms),
        tuple(pools),
        tuple(limits),
        START_MS,
        duration_ms=max((each.at_ms for each in arrivals), default=0) or 1,
        until_ms=until_ms,
    )


async def simulate(of: Workload) -> Simulation:
    """The simulation after its run."""
    async with assembly.simulated(of.start_ms) as host:
        simulation = Simulation(host, of)
        await simulation.run()
        return simulation


async def journal_of(of: Workload) -> list[bytes]:
    """The lines of the journal that the engine writes in a simulation."""
    async with assembly.simulated(of.start_ms, journals=True) as host:
        await Simulation(host, of).run()
        page = await host.ctx.store.read(lambda tx: tx.journal.page(0, 1_000_000))
    return [f'{{"seq":{seq},{line.removeprefix("{")}'.encode() for seq, line in page]


async def measured(**fields: Any) -> Measures:
    """What is measured of a model."""
    return (await simulate(generate(model(**fields), 1, 100_000))).measures


@st.composite
def small_workloads(draw: st.DrawFn) -> Workload:
    """A few tasks of some keys and levels, with and without limits, failures and a second pool of workers."""
    arrivals = [
        SimulatedArrival(
            draw(st.integers(0, 20)) * 250,
            "q",
            "task",
            tuple(
                AttemptOutcome(draw(st.sampled_from([10, 500, 3_000])), fails)
                for fails in draw(st.sampled_from([(False,), (True, False)]))
            ),
            key=draw(st.sampled_from(KEYS)),
            level=draw(st.sampled_from([3, 5])),
            weight_milli=draw(st.sampled_from([1_000, 2_500])),
            backoff_ms=(700,),
        )
        for _ in range(draw(st.integers(1, 14)))
    ]
    settings: dict[str, Any] = {}
    for name, values in {
        "max_active_leases": st.integers(1, 4),
        "max_dispatches_per_minute": st.integers(2, 8),
        "queue_rps_limit": st.sampled_from([0.5, 2, 20]),
        "weights": st.fixed_dictionaries({"a": st.sampled_from([1, 3])}),
        "fairness_key_max_running_default": st.integers(1, 2),
    }.items():
        if draw(st.booleans()):
            settings[name] = draw(values)
    pools = [WorkerPool("q", draw(st.integers(1, 2)), draw(st.integers(1, 4)))]
    if draw(st.booleans()):
        pools.append(WorkerPool("q", 1, 2, joins_ms=1_250))
    return workload(arrivals, pools, [LimitSettings(QUEUE, settings)] if settings else ())
