"""Our side of the accuracy benchmark: a real server process, spoken to in plain HTTP by one connection."""

from __future__ import annotations

import contextlib
import http.client
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks.fair_line import Waiting
from benchmarks.stands import Ground, StoreName, new_store, serving
from benchmarks.workload_loops import ACTIVITY_TYPE, OPERATOR_HEADERS, WORKER_HEADERS, UnexpectedAnswer

STARTS_TOGETHER = 100
WORKER = "accuracy-worker"
LEASES = {"DW_ACTIVITY_TASK_TIMEOUT": "3600", "DW_WORKER_STALE_AFTER_SECONDS": "3600"}
"""Tasks that were taken are never reported: they must not come back while the order is read."""


class PenstockLine:
    """One queue after the other on a server; `batch` tasks are asked for in each poll."""

    def __init__(self, url: str, batch: int) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self._batch = batch
        self._numbers = itertools.count(1)
        self._queue = ""

    def renew(self) -> None:
        self._queue = f"accuracy-{next(self._numbers)}"
        registration = {
            "worker_id": self._worker,
            "task_queue": self._queue,
            "runtime": "external",
            "supported_activity_types": [ACTIVITY_TYPE],
            "max_concurrent_activity_tasks": 1_000_000,
        }
        self._send("POST", "/api/worker/register", registration, WORKER_HEADERS)

    @property
    def _worker(self) -> str:
        return f"{WORKER}-{self._queue}"

    def enqueue(self, tasks: Sequence[Waiting]) -> None:
        for start in range(0, len(tasks), STARTS_TOGETHER):
            items = [self._start(task) for task in tasks[start : start + STARTS_TOGETHER]]
            answer = self._send("POST", "/api/activities/batch", {"items": items}, OPERATOR_HEADERS)
            if answer["refused"]:
                raise UnexpectedAnswer(f"starts were refused: {answer}")

    def _start(self, task: Waiting) -> dict[str, Any]:
        return {
            "activity_id": f"{self._queue}-{next(self._numbers)}",
            "activity_type": ACTIVITY_TYPE,
            "task_queue": self._queue,
            "priority": task.level,
            "fairness_key": task.key,
            "fairness_weight": task.weight,
        }

    def override(self, key: str, weight: float) -> None:
        change = {"task_queue_type": "activity", "set_fairness_weight_overrides": {key: weight}}
        path = f"/api/task-queues/{self._queue}/config"
        self._send("PATCH", path, change, OPERATOR_HEADERS)

    def take(self, count: int) -> list[str]:
        keys: list[str] = []
        while len(keys) < count:
            poll = {
                "worker_id": self._worker,
                "task_queue": self._queue,
                "timeout_seconds": 0,
                "max_tasks": min(self._batch, count - len(keys)),
            }
            found = self._send("POST", "/api/worker/activity-tasks/poll", poll, WORKER_HEADERS)["tasks"]
            if not found:
                break
            keys += [task["fairness_key"] for task in found]
        return keys

    def close(self) -> None:
        self._connection.close()

    def _send(self, method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        self._connection.request(method, path, msgspec.json.encode(body), dict(headers))
        with self._connection.getresponse() as response:
            raw = response.read()
        if response.status >= 300:
            raise UnexpectedAnswer(f"{method} {path} answered {response.status}: {raw[:500]!r}")
        return msgspec.json.decode(raw)


@contextlib.contextmanager
def penstock_line(store: StoreName, ground: Ground, batch: int) -> Iterator[PenstockLine]:
    """A server on an empty store, up inside the block."""
    with serving(store, ground, new_store(store, ground), LEASES) as server:
        line = PenstockLine(server.url, batch)
        with contextlib.closing(line):
            yield line
