"""Throughput through HTTP, repetition by repetition, with the limits measured in between."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.databases import Postgres
from benchmarks.limits import postgres_commits, sqlite_commits
from benchmarks.processes import load_average
from benchmarks.samples import cpu_ms, latencies, loads, median, rates, ratio, spread
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, stand
from benchmarks.work import Kind, Order, Outcome

ONE_BY_ONE = "commits one by one"
REQUEST_LIMITS = {
    "page": "requests for a page, nothing checked",
    "checked": "requests through all checks, no store",
    "committed": "requests that commit one row",
}
WARM_UP = 20


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    about: str
    order: Callable[[Sizes], Order]


WORKLOADS = (
    Workload(
        "workflow",
        "workflow of one activity, 100 in flight, one task per request",
        lambda sizes: Order(Kind.WORKFLOWS, "", sizes.workflows),
    ),
    Workload(
        "workflow-batch",
        "the same; starts, polls and reports of up to 50",
        lambda sizes: Order(Kind.WORKFLOWS, "", sizes.workflows * sizes.batched, batch=50),
    ),
    Workload(
        "activity",
        "standalone activity, 100 in flight, one task per request",
        lambda sizes: Order(Kind.ACTIVITIES, "", sizes.activities),
    ),
    Workload(
        "activity-batch",
        "the same, 400 in flight; starts, polls and reports of up to 100",
        lambda sizes: Order(Kind.ACTIVITIES, "", sizes.activities * sizes.batched, in_flight=400, batch=100),
    ),
)

Say = Callable[[str], None]


class Campaign:
    """All repetitions of limits and workloads on the chosen stores, interleaved."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say
        self._limits: dict[tuple[StoreName, str], list[tuple[float, float]]] = defaultdict(list)
        self._outcomes: dict[tuple[StoreName, str], list[Outcome]] = defaultdict(list)

    def run(self, stores: Sequence[StoreName], workloads: Sequence[Workload]) -> dict[str, Any]:
        with contextlib.ExitStack() as stack:
            stands = [stack.enter_context(stand(store, self._ground)) for store in stores]
            for each in stands:
                self._warm_up(each, workloads)
            for number in range(1, self._sizes.repetitions + 1):
                for each in stands:
                    self._say(f"repetition {number}: {each.store.value}")
                    self._measure_limits(each)
                    for workload in workloads:
                        outcome = each.send(workload.order(self._sizes))
                        self._outcomes[each.store, workload.name].append(outcome)
        return {
            "limits": [self._limit(*key) for key in self._limits],
            "workloads": [self._workload(store, each) for store in stores for each in workloads],
        }

    def _warm_up(self, at: Stand, workloads: Sequence[Workload]) -> None:
        """Once, unmeasured: statements are prepared, code is loaded, queues exist."""
        for kind in {each.order(self._sizes).kind for each in workloads}:
            at.send(Order(kind, "", WARM_UP))

    def _measure_limits(self, at: Stand) -> None:
        commits = (
            sqlite_commits(self._ground.folder, self._sizes.commit_seconds)
            if at.store is StoreName.SQLITE
            else postgres_commits(self._database().url(), self._sizes.commit_seconds)
        )
        for name, rate in commits.items():
            self._limits[at.store, name].append((rate, load_average()))
        for request, name in REQUEST_LIMITS.items():
            outcome = at.send(Order(Kind.REQUESTS, "", self._sizes.requests, request=request))
            self._limits[at.store, name].append((outcome.count / outcome.seconds, outcome.load))

    def _database(self) -> Postgres:
        assert self._ground.postgres is not None, "chosen stores have their database"
        return self._ground.postgres

    def _limit(self, store: StoreName, name: str) -> dict[str, Any]:
        found = self._limits[store, name]
        return {
            "store": store.value,
            "name": name,
            "per_second": spread(rate for rate, _ in found),
            "load": loads(load for _, load in found),
        }

    def _workload(self, store: StoreName, workload: Workload) -> dict[str, Any]:
        outcomes = self._outcomes[store, workload.name]
        per_second = rates(outcomes)
        requests = spread(each.requests / each.seconds for each in outcomes)
        return {
            "store": store.value,
            "name": workload.name,
            "about": workload.about,
            "per_second": per_second,
            "requests_per_second": requests,
            "latency_ms": latencies(outcomes),
            "cpu_ms": cpu_ms(outcomes),
            "load": loads(each.load for each in outcomes),
            "ratios": {
                "tasks to commits one by one": ratio(
                    median(per_second), self._median_limit(store, ONE_BY_ONE)
                ),
                "requests to checked requests": ratio(
                    median(requests), self._median_limit(store, REQUEST_LIMITS["checked"])
                ),
                "tasks to requests that commit one row": ratio(
                    median(per_second), self._median_limit(store, REQUEST_LIMITS["committed"])
                ),
            },
        }

    def _median_limit(self, store: StoreName, name: str) -> float | None:
        found = self._limits.get((store, name))
        return spread(rate for rate, _ in found)["median"] if found else None
