"""What binds each workload of the part `peers`, for ours: CPU of each process, its layers, and counted facts.

Each workload runs twice on the same server. Once undisturbed: CPU, requests, statements and bytes for each item. Then
with a sampler at every process: how the time of each is shared among layers and functions. SQLite tells nobody how
many statements reach it, so a server that counts them does a little of each workload after that.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.client_processes import ROOT
from benchmarks.counted_server import FILE, told
from benchmarks.counters import Statement, asked_each, connections, counted, telling_postgres
from benchmarks.databases import Postgres
from benchmarks.layers import profile
from benchmarks.peer_measures import Workload
from benchmarks.peer_readings import counting
from benchmarks.peer_stage import Stage, stage
from benchmarks.peer_systems import Address, Counts, System, ours
from benchmarks.peers.environments import Absent
from benchmarks.process_trees import cpu_seconds_of_trees, kernel_shares, mapped
from benchmarks.processes import load_average
from benchmarks.profiled_work import Job, jobs
from benchmarks.sampler import RATE, Sampler
from benchmarks.stands import Ground, StoreName, new_store, serving
from benchmarks.workloads import Say

COUNTS = Counts(2000, 5000, 6000, 100, {1: 500, 5: 150})
COUNTED = Counts(400, 1000, 1000, 20, {1: 100, 5: 50})
"""Enough for a server that only counts."""
IDLE_SECONDS, COUNTED_IDLE_SECONDS, QUICK_IDLE_SECONDS = 10.0, 5.0, 0.2
WARM = 100
CONNECTIONS = 4
"""How many of the things that busy connections do are kept."""
LEAST_SECONDS = 0.0001
"""What a workload takes whose answer is there when it is asked for."""
SAMPLED = ("server", "worker", "client")
FUNCTIONS = {"server": 15, "worker": 8, "client": 8}
WORKER_UP_SECONDS = 0.3
"""A worker that has just been started is looked at after that."""
IMPORTS = """
import os, time
import uvloop
{}
from benchmarks.process_trees import mapped
print([time.process_time(), mapped(os.getpid())["values"]])
"""
"""A process that imports: its CPU seconds with those of Python itself, and the memory that its values take then."""
IMPORTED = {
    "worker": "import penstock, penstock.sdk.worker",
    "server": "import penstock.assembly, penstock.cli.program, penstock.cli.server, penstock.stores.{store}",
}
Row = Mapping[str, Any]
_numbers = itertools.count(1)


class Profiles:
    """Profiles ours on the stores that were chosen."""

    def __init__(self, ground: Ground, say: Say, *, quick: bool, workloads: Collection[Workload]) -> None:
        self._ground, self._say, self._quick, self._workloads = ground, say, quick, workloads
        self._missing: dict[str, str] = {}
        """What a store has no findings of, and why."""

    def run(self, stores: Sequence[StoreName]) -> dict[str, Any]:
        rows = [row for store in stores for row in self._rows(store)]
        return {"rate": RATE, "rows": rows}

    def _rows(self, store: StoreName) -> list[dict[str, Any]]:
        self._missing = {}
        with self._ground_of(store) as (ground, tells):
            with stage(ours(store, ground), ground.folder) as at_work:
                first = _first_task(at_work) | _imports(store)
                sampler = self._sampler(store, at_work)
                watch = Watch(store, at_work, ground.postgres, tells, sampler)
                rows = [self._row(watch, job) for job in self._jobs(COUNTS, IDLE_SECONDS)]
            for row in rows:
                row |= {"first_task": first, "missing": self._missing}
            if store is StoreName.SQLITE:
                _add(rows, self._asked_of_sqlite(ground))
        return rows

    @contextlib.contextmanager
    def _ground_of(self, store: StoreName) -> Iterator[tuple[Ground, bool]]:
        """With a PostgreSQL of its own: one that counts its statements is a little slower."""
        if store is StoreName.SQLITE:
            yield replace(self._ground, postgres=None), False
            return
        with telling_postgres(self._ground.folder, f"profiled-{next(_numbers)}") as (postgres, tells):
            if not tells:
                self._leave_out(store, "statements", "the extension pg_stat_statements is not installed")
            yield replace(self._ground, postgres=postgres), tells

    def _jobs(self, counts: Counts, idle_seconds: float) -> Iterator[Job]:
        if self._quick:
            return jobs(counts.least(), QUICK_IDLE_SECONDS, self._workloads)
        return jobs(counts, idle_seconds, self._workloads)

    def _sampler(self, store: StoreName, at_work: Stage) -> Sampler | None:
        try:
            sampler = Sampler(self._ground.folder, self._say, install=not self._quick)
        except Absent as absent:
            self._leave_out(store, "layers and functions", f"py-spy: {absent}")
            return None
        if why := sampler.try_on(at_work.pids["server"]):
            self._leave_out(store, "layers and functions", f"py-spy cannot look at the server: {why}")
            return None
        if not sampler.is_native:
            self._leave_out(
                store, "frames of C", "py-spy cannot read them here: SQLite counts as its callers"
            )
        return sampler

    def _row(self, watch: Watch, job: Job) -> dict[str, Any]:
        self._say(f"profile, {watch.store.value}: {job.about}")
        return watch.row(job)

    def _asked_of_sqlite(self, ground: Ground) -> dict[str, dict[str, Any]]:
        """Statements and commits for each item of each workload."""
        self._say("profile, sqlite: statements and commits of each")
        path = ground.folder / f"statements-{next(_numbers)}"
        found = {}
        with stage(_telling_system(ground, path), ground.folder) as at_work:
            _first_task(at_work)
            for job in self._jobs(COUNTED, COUNTED_IDLE_SECONDS):
                question, before = job.prepare(at_work), path.stat().st_size
                job.begin(at_work, question)
                job.finish(at_work)
                time.sleep(job.echo_seconds)
                sent = (Statement(sql, calls) for sql, calls in told(path, before).items())
                found[job.name] = asked_each(sent, job.count)
        return found

    def _leave_out(self, store: StoreName, name: str, why: str) -> None:
        self._missing[name] = why
        self._say(f"profile, {store.value}: no {name}: {why}")


def _first_task(at_work: Stage) -> dict[str, Any]:
    """How long the worker took to its first task, and its CPU until then; then warm all of it up."""
    seconds = at_work.first_task_seconds()
    spent = cpu_seconds_of_trees((at_work.worker_pid,))
    at_work.client.ask("tasks", WARM)
    return {"ms": round(seconds * 1000, 1), "cpu_ms": round(spent * 1000, 1)}


def _imports(store: StoreName) -> dict[str, Any]:
    """CPU of the imports of a worker, and memory after those of worker and server."""
    found = {name: _imported(code.format(store=store.value)) for name, code in IMPORTED.items()}
    return {
        "import_cpu_ms": round(found["worker"][0] * 1000, 1),
        "import_mib": {name: round(values, 1) for name, (_, values) in found.items()},
    }


def _imported(code: str) -> tuple[float, float]:
    command = (sys.executable, "-c", IMPORTS.format(code))
    told = subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout
    return msgspec.json.decode(told, type=tuple[float, float])


def _add(rows: Sequence[dict[str, Any]], asked: Mapping[str, Mapping[str, Any]]) -> None:
    for row in rows:
        row["counts"] |= asked.get(row["name"], {})


def _shares(seen: Counter[str]) -> dict[str, float]:
    return {name: round(count / seen.total(), 3) for name, count in seen.most_common(CONNECTIONS)}


def _telling_system(ground: Ground, path: Path) -> System:
    @contextlib.contextmanager
    def telling_server() -> Iterator[Address]:
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        command = (sys.executable, "-m", "benchmarks.counted_server", "server", "start")
        settings = {FILE: str(path), "PYTHONPATH": paths}
        url = new_store(StoreName.SQLITE, ground)
        with serving(StoreName.SQLITE, ground, url, settings, command) as server:
            yield Address(server.url, server.pids)

    return replace(ours(StoreName.SQLITE, ground), serving=telling_server)


@dataclass(frozen=True, slots=True)
class Watch:
    """Does a workload undisturbed and then with a sampler, and says what was seen."""

    store: StoreName
    at_work: Stage
    postgres: Postgres | None
    tells: bool
    """Whether PostgreSQL says which statements reached it."""
    sampler: Sampler | None

    def row(self, job: Job) -> dict[str, Any]:
        found = self._undisturbed(job)
        with self._connections() as seen:
            samples, failed = self._sampled(job, found)
        return found | {"samples": samples, "not_sampled": failed, "connections": _shares(seen)}

    def _connections(self) -> contextlib.AbstractContextManager[Counter[str]]:
        """What those to PostgreSQL wait for; SQLite has none."""
        return contextlib.nullcontext(Counter()) if self.postgres is None else connections(self.postgres)

    def _undisturbed(self, job: Job) -> dict[str, Any]:
        at_work, question = self.at_work, job.prepare(self.at_work)
        with counted(at_work.url, at_work.pids, self.postgres, tells=self.tells) as counts:
            job.begin(at_work, question)
            with counting(at_work.pids) as spent, kernel_shares(at_work.pids) as kernel:
                began = time.monotonic()
                answer = job.finish(at_work)
                seconds = time.monotonic() - began
                time.sleep(job.echo_seconds)
        return {
            "store": self.store.value,
            "name": job.name,
            "about": job.about,
            "item": job.item,
            "count": job.count,
            "seconds": round(seconds, 4),
            "per_second": round(answer["count"] / answer["seconds"], 2) if "seconds" in answer else None,
            "latency_ms": answer.get("result") or answer.get("each"),
            "processes": [
                {
                    "process": name,
                    "cpu_ms": round(used * 1000 / job.count, 4),
                    "cores": round(used / seconds, 4),
                    "kernel": round(kernel[name], 3),
                }
                for name, used in spent.cpu_seconds.items()
            ],
            "others_percent": round(spent.others_percent, 1),
            "load": load_average(),
            "counts": counts.each(job.count),
            "memory_mib": {name: mapped(pid) for name, pid in at_work.pids.items() if name in SAMPLED},
        }

    def _sampled(self, job: Job, undisturbed: Row) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The profile of each process, and why some have none."""
        if self.sampler is None:
            return [], {}
        question = job.prepare(self.at_work)
        with self.sampler.sampling() as spies:
            spies.attach(self._sampled_pids())
            began = time.monotonic()
            job.begin(self.at_work, question)
            if self._sampled_pids().keys() - spies.spies.keys():
                time.sleep(WORKER_UP_SECONDS)
                spies.attach(self._sampled_pids(), wait=False)
            job.finish(self.at_work)
            seconds = time.monotonic() - began
        slowed = round(seconds / max(undisturbed["seconds"], LEAST_SECONDS), 2)
        kernel = {each["process"]: each["kernel"] for each in undisturbed["processes"]}
        found = [
            {"process": name, "slowed": slowed, "native": self.sampler.is_native}
            | profile(stacks, FUNCTIONS[name], kernel[name])
            for name, stacks in spies.stacks.items()
        ]
        return found, spies.failed

    def _sampled_pids(self) -> dict[str, int]:
        return {name: pid for name, pid in self.at_work.pids.items() if name in SAMPLED}
