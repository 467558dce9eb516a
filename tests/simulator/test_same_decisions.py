"""The simulator grants what the server grants, and its journal breaks no law."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import Phase, given, settings

from penstock.core.verify.check import check
from penstock.simulator.traces.recorder import ServerState
from penstock.simulator.traces.replay import replay_of
from penstock.simulator.workload import Workload
from penstock.wire.operations.journal import read_journal
from tests.simulator.http_server import served
from tests.simulator.loads import journal_of, simulate, small_workloads
from tests.simulator.traces.recorded import exported
from tests.support.effort import times

GRID_MS = 250


@settings(max_examples=times(15), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(of=small_workloads())
def test_a_server_that_is_polled_all_the_time_grants_the_same_tasks_at_the_same_moments(of: Workload) -> None:
    """Holds `simulator-is-the-scheduler`. The server is polled at other moments, too."""

    async def both() -> None:
        simulated = (await simulate(of)).grants
        last_ms = max((at_ms for at_ms, _ in simulated), default=0)
        moments = [*(at_ms for at_ms, _ in simulated), *range(0, last_ms, GRID_MS)]
        granted = (await served(of, moments)).grants
        if has_several_workers(of):
            simulated, granted = sorted(simulated), sorted(granted)
        assert granted == simulated

    asyncio.run(both())


def has_several_workers(of: Workload) -> bool:
    """A claim deals the tasks of one moment out to its polls in turn, so their order may differ."""
    return sum(pool.count for pool in of.pools) > 1


@settings(max_examples=times(10), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(of=small_workloads())
def test_the_replay_of_what_a_server_recorded_grants_the_same_again(of: Workload) -> None:
    """The trace comes from the journal of a server that was used over HTTP."""

    async def both() -> None:
        moments = [at_ms for at_ms, _ in (await simulate(of)).grants]
        granted, lines, config = await served(of, moments)
        assert not sum(check(read_journal(lines, "served"))[0].found.values())
        window_ms = of.start_ms, of.start_ms + max(moments) + 60_000
        with TemporaryDirectory() as folder:
            now = ServerState(queues={("q", "activity"): config})
            replay = replay_of(exported(lines, Path(folder) / "x.trace", window_ms, now), 1_000)
        again = [
            (at_ms, replay.tasks[index].key) for at_ms, index in (await simulate(replay.workload)).grants
        ]
        before = [(at_ms, of.arrivals[index].key) for at_ms, index in granted]
        if has_several_workers(of):
            again, before = sorted(again), sorted(before)
        assert again == before

    asyncio.run(both())


@settings(max_examples=times(10), deadline=None)
@given(of=small_workloads())
def test_verify_finds_nothing_in_the_journal_of_a_simulation(of: Workload) -> None:
    book, evidence = check(read_journal(asyncio.run(journal_of(of)), "simulated"))
    assert evidence.journal_lines >= 2 * len(of.arrivals)
    assert not sum(book.found.values()), book.findings
