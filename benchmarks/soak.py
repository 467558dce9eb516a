"""Hours of ordinary work: whether memory, open files or tables of a server and its worker grow without end.

Tasks and workflows come in rounds, with rests between them. What is closed stays in the database until its time is
over, so tables do grow, by as much as each task leaves; nothing else may.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.growth import slope_per_hour
from benchmarks.peer_stage import Stage, stage
from benchmarks.peer_systems import ours
from benchmarks.process_trees import mapped, memory, tree
from benchmarks.processes import load_average
from benchmarks.stands import Ground, StoreName
from benchmarks.table_sizes import bytes_of
from benchmarks.workloads import Say

TASKS, WORKFLOWS, STEPS = 200, 40, 2
ROUND_SECONDS = 5.0
SETTLED = 0.25
"""The first part of a soak fills caches and pools; growth is read off the rest."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look found."""

    seconds: float
    done: int
    values: Mapping[str, float]


class Soak:
    def __init__(self, ground: Ground, say: Say, minutes: float) -> None:
        self._ground, self._say, self._seconds = ground, say, minutes * 60

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        return [row for store in stores for row in self._rows(store, list(self._samples(store)))]

    def _samples(self, store: StoreName) -> Iterator[Sample]:
        with stage(ours(store, self._ground), self._ground.folder) as at_work:
            at_work.first_task_seconds()
            began, done = time.monotonic(), 1
            while time.monotonic() - began < self._seconds:
                round_began = time.monotonic()
                at_work.client.ask("tasks", TASKS)
                at_work.client.ask("workflows", WORKFLOWS, STEPS)
                done += TASKS + WORKFLOWS * (1 + STEPS)
                sample = Sample(time.monotonic() - began, done, self._look(store, at_work))
                self._say(f"soak, {store.value}: {sample.seconds / 60:.1f} minutes, {_told(sample)}")
                yield sample
                left = self._seconds - (time.monotonic() - began)
                time.sleep(max(0.0, min(left, ROUND_SECONDS - (time.monotonic() - round_began))))

    def _look(self, store: StoreName, at_work: Stage) -> dict[str, float]:
        assert at_work.server_pid is not None
        found: dict[str, float] = {}
        for name, pid in (("server", at_work.server_pid), ("worker", at_work.worker_pid)):
            found[f"{name} memory, MiB"] = memory(pid).pss
            found[f"{name} memory of its own, MiB"] = mapped(pid)["values"]
            found[f"{name} open files"] = _open_files(pid)
        tables = bytes_of(self._ground, store)
        return found | {f"{name}, MiB": size / 2**20 for name, size in tables.items()}

    def _rows(self, store: StoreName, samples: Sequence[Sample]) -> Iterator[dict[str, Any]]:
        settled = [each for each in samples if each.seconds >= SETTLED * samples[-1].seconds] or samples[-1:]
        done = samples[-1].done - samples[0].done
        for name in samples[-1].values:
            first, last = samples[0].values.get(name, 0.0), samples[-1].values[name]
            points = [(each.seconds, each.values.get(name, 0.0)) for each in settled]
            yield {
                "store": store.value,
                "name": name,
                "minutes": round(samples[-1].seconds / 60, 1),
                "done": done,
                "first": round(first, 2),
                "settled": round(points[0][1], 2),
                "last": round(last, 2),
                "most": round(max(each.values.get(name, 0.0) for each in samples), 2),
                "per_hour": round(slope_per_hour(points), 3),
                "bytes_each": round((last - first) * 2**20 / done, 1) if done and "MiB" in name else None,
                "load": load_average(),
            }


def _open_files(pid: int) -> int:
    found = 0
    for each in tree(pid):
        with contextlib.suppress(OSError):
            found += sum(1 for _ in Path(f"/proc/{each}/fd").iterdir())
    return found


def _told(sample: Sample) -> str:
    shown = (name for name in sample.values if "memory" in name or "files" in name)
    return ", ".join(f"{name} {sample.values[name]:.1f}" for name in shown)
