"""A task of horsies, and workflows of it."""

from __future__ import annotations

import os
from typing import Any

from horsies import (  # type: ignore[import-not-found]
    AppConfig,
    Horsies,
    PostgresConfig,
    TaskError,
    TaskNode,
    TaskResult,
)

from benchmarks.peers.exchange import Ticks

CONNECTIONS = 16
AHEAD = 8
"""Tasks that a child takes ahead; none as it ships, and slower."""
LEASE_MS = 60_000
STEPS = (1, 5)
url = os.environ["BENCH_ADDRESS"].replace("postgresql://", "postgresql+psycopg://")
ticks = Ticks()
app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=url, pool_size=CONNECTIONS, max_overflow=0),
        prefetch_buffer=AHEAD,
        claim_lease_ms=LEASE_MS,
    )
)


@app.task("nothing")  # type: ignore[untyped-decorator]
def nothing() -> TaskResult[float, TaskError]:
    return TaskResult(ok=ticks.tick())


def _sequence(steps: int) -> Any:
    nodes: list[Any] = []
    for _ in range(steps):
        after = {"waits_for": [nodes[-1]]} if nodes else {}
        nodes.append(TaskNode(fn=nothing, **after))
    return app.workflow(
        name=f"sequence{steps}", tasks=nodes, output=nodes[-1], definition_key=f"bench.sequence{steps}.v1"
    )


sequences = {steps: _sequence(steps) for steps in STEPS}
app.discover_tasks(["benchmarks.peers.tasks_horsies"])
