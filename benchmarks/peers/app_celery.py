"""An app of Celery with one task."""

from __future__ import annotations

import os

from celery import Celery  # type: ignore[import-not-found]

from benchmarks.peers.marks import mark

app = Celery("bench", broker=os.environ["BENCH_ADDRESS"])


@app.task(name="first")  # type: ignore[untyped-decorator]
def first() -> None:
    mark()


def send() -> None:
    first.delay()
