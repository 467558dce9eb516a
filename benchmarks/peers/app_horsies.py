"""An app of horsies with one task."""

from __future__ import annotations

import os

from horsies import AppConfig, Horsies, PostgresConfig, TaskError, TaskResult, is_ok  # type: ignore[import-not-found]

from benchmarks.peers.marks import mark

url = os.environ["BENCH_ADDRESS"].replace("postgresql://", "postgresql+psycopg://")
app = Horsies(AppConfig(broker=PostgresConfig(database_url=url)))


@app.task("first")  # type: ignore[untyped-decorator]
def first() -> TaskResult[None, TaskError]:
    mark()
    return TaskResult(ok=None)


app.discover_tasks(["benchmarks.peers.app_horsies"])


def send() -> None:
    sent = first.send()
    if not is_ok(sent):
        raise RuntimeError(f"it was not sent: {sent}")
