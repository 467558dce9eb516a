"""The same load through the HTTP API of an in-process server whose clock stands still between events.

Nothing of the simulator decides here: workers poll one after the other, as long as one of them gets tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from penstock import assembly
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.sdk.connection.transport import CONTROL_PLANE, WORKER_PLANE
from penstock.server.in_process import send_request
from penstock.settings import load
from penstock.simulator.engine_driver import SimulatedClock
from penstock.simulator.workload import Workload
from penstock.wire.limits.limit_paths import requests_for

SETTINGS = {
    "DW_AUTH_DRIVER": "none",
    "DW_DATABASE_URL": "memory://",
    "DW_JOURNAL": "true",
    "DW_ACTIVITY_TASK_TIMEOUT": "86400",
    "DW_WORKER_STALE_AFTER_SECONDS": "86400",
}


class HttpServer:
    """Carries out a workload by requests; `grants` has what `Simulation.grants` has."""

    def __init__(self, server: assembly.Server, clock: SimulatedClock, of: Workload) -> None:
        self._server, self._clock, self._workload = server, clock, of
        self.grants: list[tuple[int, int]] = []
        self._free: dict[str, int] = {}
        self._attempts: dict[int, int] = {}
        self._ends: list[tuple[int, str, int, dict[str, Any]]] = []
        self._moments: list[int] = []

    async def run(self, moments: list[int]) -> None:
        """Live through these moments, and through those at which tasks end or are tried again."""
        joining = [
            (pool.joins_ms, f"w{number}-{each}", pool.slots)
            for number, pool in enumerate(self._workload.pools)
            for each in range(pool.count)
        ]
        arrivals = list(enumerate(self._workload.arrivals))
        self._moments = sorted(
            {*moments, *(at_ms for at_ms, *_ in joining), *(each.at_ms for _, each in arrivals)}
        )
        while self._moments:
            at_ms = heapq.heappop(self._moments)
            while self._moments and self._moments[0] == at_ms:
                heapq.heappop(self._moments)
            self._clock.move_to(self._workload.start_ms + at_ms)
            if at_ms == 0:
                for limits in self._workload.limits:
                    for path, body in requests_for(limits):
                        await self._request("PATCH", path, body)
            for _, worker_id, slots in [each for each in joining if each[0] == at_ms]:
                await self._register(worker_id, slots)
            for end in [each for each in self._ends if each[0] == at_ms]:
                self._ends.remove(end)
                await self._report(*end[1:])
            await due_tasks(self._server.ctx).sweep()
            for index, arrival in [each for each in arrivals if each[1].at_ms == at_ms]:
                await self._start(index, arrival)
            while any([await self._poll(worker_id, at_ms) for worker_id in self._free]):
                pass

    async def _start(self, index: int, arrival: Any) -> None:
        body = {
            "activity_id": f"task-{index}",
            "activity_type": arrival.type,
            "task_queue": arrival.queue,
            "priority": arrival.level,
            "fairness_key": arrival.key or None,
            "fairness_weight": arrival.weight_milli / 1000,
            "retry_policy": {"max_attempts": 1000, "backoff_ms": list(arrival.backoff_ms)},
        }
        await self._request("POST", "/activities", {name: value for name, value in body.items() if value})

    async def _register(self, worker_id: str, slots: int) -> None:
        body = {
            "worker_id": worker_id,
            "task_queue": "q",
            "runtime": "python",
            "max_concurrent_activity_tasks": slots,
        }
        await self._request("POST", "/worker/register", body)
        self._free[worker_id] = slots

    async def _poll(self, worker_id: str, at_ms: int) -> bool:
        if not self._free[worker_id]:
            return False
        body = {
            "worker_id": worker_id,
            "task_queue": "q",
            "timeout_seconds": 0,
            "max_tasks": self._free[worker_id],
        }
        answer = await self._request("POST", "/worker/activity-tasks/poll", body)
        for task in answer.get("tasks") or ():
            index = int(task["workflow_id"].removeprefix("task-"))
            self.grants.append((at_ms, index))
            self._free[worker_id] -= 1
            attempts = self._workload.arrivals[index].attempts
            attempt = attempts[min(self._attempts.setdefault(index, 0), len(attempts) - 1)]
            self._ends.append((at_ms + attempt.duration_ms, worker_id, index, task))
            heapq.heappush(self._moments, at_ms + attempt.duration_ms)
        return bool(answer.get("tasks"))

    async def _report(self, worker_id: str, index: int, task: Mapping[str, Any]) -> None:
        attempts = self._workload.arrivals[index].attempts
        fails = attempts[min(self._attempts[index], len(attempts) - 1)].fails
        lease = {"lease_owner": worker_id, "activity_attempt_id": task["activity_attempt_id"]}
        verb, more = ("fail", {"failure": {"message": "failed"}}) if fails else ("complete", {"result": None})
        await self._request("POST", f"/worker/activity-tasks/{task['task_id']}/{verb}", lease | more)
        self._attempts[index] += 1
        for pause_ms in self._workload.arrivals[index].backoff_ms if fails else ():
            heapq.heappush(self._moments, self._clock.now_ms() - self._workload.start_ms + pause_ms)
        self._free[worker_id] += 1

    async def config(self) -> Any:
        return await self._request("GET", "/task-queues/q/config", {})

    async def _request(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        headers = dict([WORKER_PLANE if path.startswith("/worker") else CONTROL_PLANE])
        content = msgspec.json.encode(body)
        status, raw = await send_request(self._server.application, method, f"/api{path}", headers, content)
        answer = msgspec.json.decode(raw)
        assert status < 300, (method, path, status, answer)
        return answer


class ServedLoad(NamedTuple):
    """What a server granted, and the journal that it wrote."""

    grants: list[tuple[int, int]]
    journal: list[bytes]
    config: Mapping[str, Any]
    """The settings of its queue afterwards."""


async def served(of: Workload, moments: list[int]) -> ServedLoad:
    """What a server grants for this load, by requests at these moments."""
    clock = SimulatedClock(of.start_ms)
    async with assembly.assembled(load(SETTINGS), clock=clock, duties=lambda _: ()) as server:
        http = HttpServer(server, clock, of)
        await http.run(moments)
        page = await server.ctx.store.read(lambda tx: tx.journal.page(0, 100_000))
        lines = [f'{{"seq":{seq},{line.removeprefix("{")}'.encode() for seq, line in page]
        return ServedLoad(http.grants, lines, await http.config())
