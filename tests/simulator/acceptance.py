"""Is a rehearsal right? Random changes on a real server under a fixed load, beside what the simulator says of them.

    python -m tests.simulator.acceptance --changes 200 --at-once 8

The load runs unchanged on one queue of a server and with random changes on others at the same time, in real time over
HTTP, some changes at once until all had their turn. The journal of the unchanged queue becomes a trace; the simulator
applies each change to it, and its p95 wait is compared with that of the queue that had the change. A change is right
in sign if both waits move in the same direction (or neither by more than a poll or 5 %), and right in value within 20
%, or within the time of a poll.

The program prints one line for each change and the two shares, and exits with 1 if one of them misses its goal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import assembly
from penstock.core.model import TaskKind
from penstock.core.verify.journal import SettingsChanged
from penstock.sdk.connection.transport import HttpTransport
from penstock.simulator.changes import Change, parse_key_load, parse_setting, parse_workers
from penstock.simulator.measures import quantile
from penstock.simulator.quantiles import uniform
from penstock.simulator.run import Simulation
from penstock.simulator.traces.calibration import calibrate
from penstock.simulator.traces.recorder import ServerState, record
from penstock.simulator.traces.replay import tasks_of
from penstock.simulator.traces.trace_file import Trace, TraceHead, read_trace, write_trace
from penstock.simulator.traces.trace_load import TraceLoad
from penstock.wire.operations.journal import read_journal
from tests.support.live import TOKENS, running, server

SIGN_GOAL, VALUE_GOAL = 0.95, 0.85
VALUE_WITHIN, MOVED = 0.20, 0.05
POLL_MS = 250
"""How long a poll and a report take on a busy machine: waits that differ by less are the same."""
SLIP_MAX_S = 1.5
"""With later arrivals the load was not the fixed one, because the machine was busy: such a run says nothing."""
SECONDS = 48.0
KEYS = ("a", "b", "c")
WORKERS, SLOTS, CAP = 2, 4, 5


@dataclass(frozen=True)
class Load:
    """The fixed load: arrivals of three keys, with durations that depend on nothing but the task."""

    seed: int

    def tasks(self, factor: Mapping[str, int]) -> Iterator[tuple[float, str, float]]:
        """When each task comes, its key, and how long it takes, in seconds."""
        found: list[tuple[float, str, float]] = []
        for number in range(90):
            key = KEYS[int(3 * uniform(self.seed, number, "key") ** 1.5)]
            at_s = 0.0 if number < 25 else SECONDS * uniform(self.seed, number, "at")
            takes_s = 0.8 + 4.0 * uniform(self.seed, number, "takes")
            found += [(at_s, key, takes_s)] * factor.get(key, 1)
        yield from sorted(found)


@dataclass(frozen=True)
class Trial:
    """A change, as the simulator and as the server are told."""

    change: Change
    config: Mapping[str, Any]
    workers: int = WORKERS
    factor: Mapping[str, int] | None = None


def random_trial(dice: random.Random, base: str) -> Trial:
    """One change of a limit, a weight, the workers or the load of a key."""
    match dice.randrange(5):
        case 0:
            cap = dice.choice([3, 4, 7, 9])
            return Trial(parse_setting(f"queue:{base}.max_active_leases={cap}"), {"max_running": cap})
        case 1:
            workers = dice.choice([1, 3])
            return Trial(parse_workers(f"{base}={workers}"), {}, workers)
        case 2:
            key, weight = dice.choice(KEYS), dice.choice([2, 4, 8])
            return Trial(
                parse_setting(f"queue:{base}.weights.{key}={weight}"),
                {"set_fairness_weight_overrides": {key: weight}},
            )
        case 3:
            key, factor = dice.choice(KEYS), dice.choice([0, 2])
            return Trial(parse_key_load(f"{key}={factor}x"), {}, factor={key: factor})
        case _:
            rate = dice.choice([1, 1.5, 2])
            return Trial(parse_setting(f"queue:{base}.queue_rps_limit={rate}"), {"queue_rps_limit": rate})


class Driver:
    """Runs the load on queues of a server, in real time."""

    def __init__(self, url: str, load: Load) -> None:
        self._http = HttpTransport(
            url, control_token=TOKENS["DW_ADMIN_TOKEN"], worker_token=TOKENS["DW_WORKER_TOKEN"]
        )
        self._load = load

    async def run(self, queue: str, trial: Trial | None) -> float:
        """The load on one queue, until every task has ended; returns by how many seconds its arrivals slipped."""
        config = {"max_running": CAP} | dict(trial.config if trial else {})
        body = {"task_queue_type": "activity"} | config
        await self._http.control("PATCH", f"/task-queues/{queue}/config", body, idempotent=True)
        tasks = list(self._load.tasks((trial.factor if trial else None) or {}))
        takes: dict[str, float] = {}
        left, started = asyncio.Semaphore(0), asyncio.get_running_loop().time()
        workers = [
            asyncio.create_task(self._work(queue, f"{queue}-w{number}", takes, left))
            for number in range(trial.workers if trial else WORKERS)
        ]

        async def arrive(at_s: float, items: list[dict[str, Any]]) -> float:
            await asyncio.sleep(max(0.0, started + at_s - asyncio.get_running_loop().time()))
            await self._http.control("POST", "/activities/batch", {"items": items}, idempotent=False)
            return asyncio.get_running_loop().time() - started - at_s

        together: dict[float, list[dict[str, Any]]] = {}
        for number, (at_s, key, takes_s) in enumerate(tasks):
            takes[f"{queue}-{number}"] = takes_s
            item = {"activity_id": f"{queue}-{number}", "activity_type": "x", "task_queue": queue}
            together.setdefault(at_s, []).append(item | {"fairness_key": key})
        arriving = [arrive(at_s, items) for at_s, items in together.items()]
        slipped = await asyncio.gather(*arriving)
        for _ in tasks:
            await left.acquire()
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        return max(slipped)

    async def _work(
        self, queue: str, worker: str, takes: Mapping[str, float], left: asyncio.Semaphore
    ) -> None:
        body = {"worker_id": worker, "task_queue": queue, "runtime": "python"}
        slots = {"max_concurrent_activity_tasks": SLOTS, "max_concurrent_workflow_tasks": 1}
        await self._http.work("/worker/register", body | slots, idempotent=True)
        free, ended = SLOTS, asyncio.Event()
        running: set[asyncio.Task[None]] = set()

        async def carry_out(task: Mapping[str, Any]) -> None:
            nonlocal free
            await asyncio.sleep(takes[task["workflow_id"]])
            report = {
                "lease_owner": worker,
                "activity_attempt_id": task["activity_attempt_id"],
                "result": None,
            }
            path = f"/worker/activity-tasks/{task['task_id']}/complete"
            await self._http.work(path, report, idempotent=True)
            free += 1
            left.release()
            ended.set()

        while True:
            ended.clear()
            if not free:
                await ended.wait()
                continue
            poll = {"worker_id": worker, "task_queue": queue, "timeout_seconds": 2, "max_tasks": free}
            answer = await self._http.work(
                "/worker/activity-tasks/poll", poll, idempotent=False, is_poll=True
            )
            for task in answer.get("tasks") or ():
                free -= 1
                each = asyncio.create_task(carry_out(task))
                running.add(each)
                each.add_done_callback(running.discard)

    async def trace(self, queue: str, folder: Path) -> Trace:
        """What was recorded of one queue."""
        rows: list[bytes] = []
        after: int | None = 0
        while after is not None:
            query = {"after": after, "limit": 5_000}
            page = await self._http.control("GET", "/system/journal", query=query, idempotent=True)
            rows += [json.dumps(each).encode() for each in page["lines"]]
            after = page.get("next_after")
        lines = list(read_journal(rows, "the journal"))
        own = f"queue:default/{queue}/activity"
        mine = [
            each
            for each in lines
            if getattr(each, "task_queue", queue) == queue
            and (not isinstance(each, SettingsChanged) or each.scope == own)
        ]
        window_ms = min(each.at_ms for each in mine if hasattr(each, "task_queue")) - 1, lines[-1].at_ms + 1
        config = await self._http.control(
            "GET", f"/task-queues/{queue}/config", query={"task_queue_type": "activity"}, idempotent=True
        )
        shown = await self._http.control("GET", "/workers", idempotent=True)
        workers = tuple(each for each in shown["workers"] if each["task_queue"] == queue)
        events, recorder = record(mine, "default", *window_ms)
        tail = recorder.tail(ServerState(workers, {(queue, "activity"): config}))
        head = TraceHead(product="x", namespace="default", from_ms=window_ms[0], until_ms=window_ms[1])
        write_trace(folder / f"{queue}.trace", head, events, tail)
        return read_trace(folder / f"{queue}.trace")

    async def close(self) -> None:
        await self._http.close()


def recorded_p95(trace: Trace) -> int:
    """The p95 wait of what a server did."""
    waits = [
        granted_ms - ready_ms
        for task in tasks_of(trace).values()
        for ready_ms, granted_ms in zip(task.ready_at_ms, task.granted_at_ms, strict=False)
    ]
    return quantile(sorted(waits), 0.95)


async def simulated_p95(load: TraceLoad, queue: str) -> int:
    """The p95 wait that the simulator expects."""
    workload = load.workload(1, 100_000)
    async with assembly.simulated(workload.start_ms) as host:
        measures = await Simulation(host, workload).run()
    return quantile(measures.queue((queue, TaskKind.ACTIVITY)).waits(), 0.95)


def direction(before_ms: int, after_ms: int) -> int:
    """-1, 0 or 1; a wait that moves by less than a poll or 5 % stays."""
    moved = after_ms - before_ms
    return 0 if abs(moved) <= max(POLL_MS, MOVED * max(before_ms, after_ms)) else (1 if moved > 0 else -1)


@dataclass(frozen=True)
class Verdict:
    """One change: the truth and the forecast, in milliseconds."""

    change: str
    base_ms: int
    truth_ms: int
    base_forecast_ms: int
    forecast_ms: int

    @property
    def is_sign_right(self) -> bool:
        true, said = (
            direction(self.base_ms, self.truth_ms),
            direction(self.base_forecast_ms, self.forecast_ms),
        )
        return true == said or (0 in (true, said) and self.is_value_right)

    @property
    def is_value_right(self) -> bool:
        return abs(self.forecast_ms - self.truth_ms) <= max(POLL_MS, VALUE_WITHIN * self.truth_ms)

    def __str__(self) -> str:
        marks = (
            f"sign {'ok' if self.is_sign_right else 'WRONG'}, value {'ok' if self.is_value_right else 'OFF'}"
        )
        return (
            f"{self.change:46} p95 {self.base_ms:6} -> {self.truth_ms:6} ms, simulated "
            f"{self.base_forecast_ms:6} -> {self.forecast_ms:6} ms: {marks}"
        )


async def judged(url: str, seed: int, changes: int, at_once: int, folder: Path) -> list[Verdict]:
    """All changes, some at a time, each time beside the unchanged load."""
    dice, driver = random.Random(seed), Driver(url, Load(seed))
    found: list[Verdict] = []
    try:
        for first in range(0, changes, at_once):
            base = f"base{first}"
            trials = [random_trial(dice, base) for _ in range(min(at_once, changes - first))]
            names = [f"{base}-c{number}" for number in range(len(trials))]
            slips = await asyncio.gather(
                driver.run(base, None),
                *(driver.run(name, trial) for name, trial in zip(names, trials, strict=True)),
            )
            recorded = TraceLoad.of(await driver.trace(base, folder), 100_000)
            print(f"{base}: calibration {await doubt(recorded) or 'met'}", flush=True)
            base_ms, base_forecast_ms = recorded_p95(recorded.trace), await simulated_p95(recorded, base)
            for name, trial, slip_s in zip(names, trials, slips[1:], strict=True):
                if max(slip_s, slips[0]) > SLIP_MAX_S:
                    print(f"{trial.change!s:46} not measured: arrivals slipped by {slip_s:.1f} s", flush=True)
                    continue
                truth_ms = recorded_p95(await driver.trace(name, folder))
                forecast_ms = await simulated_p95(recorded.with_changes([trial.change]), base)
                found.append(Verdict(str(trial.change), base_ms, truth_ms, base_forecast_ms, forecast_ms))
                print(found[-1], flush=True)
    finally:
        await driver.close()
    return found


async def doubt(load: TraceLoad) -> str:
    """Why the replay of the unchanged load is not to be trusted, if it is not."""
    workload = load.replay.workload
    async with assembly.simulated(workload.start_ms) as host:
        return calibrate(load, await Simulation(host, workload).run()).doubt


def main(arguments: Sequence[str]) -> int:
    """Run the program; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.acceptance")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8, help="queues that run beside each other")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running(server(folder, f"sqlite:///{folder}/x.db", settings={"DW_JOURNAL": "true"})) as (there,):
            found = asyncio.run(judged(there.url, options.seed, options.changes, options.at_once, folder))
    if not found:
        print("No change was measured: the machine was too busy for the load.")
        return 1
    sign = sum(each.is_sign_right for each in found) / len(found)
    value = sum(each.is_value_right for each in found) / len(found)
    print(
        f"{len(found)} changes: sign right in {sign:.1%} (goal {SIGN_GOAL:.0%}), value within 20 % in {value:.1%} "
        f"(goal {VALUE_GOAL:.0%})"
    )
    return 0 if sign >= SIGN_GOAL and value >= VALUE_GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
