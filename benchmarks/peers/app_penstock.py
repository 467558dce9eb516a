"""An app of ours with one task."""

from __future__ import annotations

from benchmarks.peers.marks import mark
from penstock import Penstock

app = Penstock("bench", control_token="operator-secret", worker_token="worker-secret")


@app.task(name="first")
def first() -> None:
    mark()


def send() -> None:
    first.send_sync()
