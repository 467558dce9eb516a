"""A task of Dramatiq, its results in Redis."""

from __future__ import annotations

import os

import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]
from dramatiq.results import Results  # type: ignore[import-not-found]
from dramatiq.results.backends import RedisBackend  # type: ignore[import-not-found]

from benchmarks.peers.exchange import Ticks

broker = RedisBroker(url=os.environ["BENCH_ADDRESS"])
broker.add_middleware(Results(backend=RedisBackend(url=os.environ["BENCH_ADDRESS"])))
dramatiq.set_broker(broker)
ticks = Ticks()


@dramatiq.actor(store_results=True)  # type: ignore[untyped-decorator]
def nothing() -> float:
    return ticks.tick()
