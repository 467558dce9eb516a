"""A task of Celery, its results in Redis."""

from __future__ import annotations

import os

from celery import Celery  # type: ignore[import-not-found]

from benchmarks.peers.exchange import Ticks

app = Celery("bench", broker=os.environ["BENCH_ADDRESS"], backend=os.environ["BENCH_ADDRESS"])
ticks = Ticks()


@app.task(name="nothing")  # type: ignore[untyped-decorator]
def nothing() -> float:
    return ticks.tick()
