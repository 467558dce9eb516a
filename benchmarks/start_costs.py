"""What caps on runs and unique keys cost a start, as a client sees it: `python -m benchmarks.start_costs`.

One server on SQLite; sections of starts without anything, under caps that are never full, and with a unique key take
turns, so that what else runs on the machine bears on all alike. The ratios are those of the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from benchmarks.processes import cpu_seconds, load_average
from benchmarks.samples import spread
from penstock.client import Client

PLAIN, CAPPED, UNIQUE = "plain", "capped", "unique"
AT_ONCE = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sections", type=int, default=15, help="sections of each kind")
    parser.add_argument("--starts", type=int, default=400, help="starts of a section")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _server(folder) as (url, pid):
        found = asyncio.run(_measure(url, pid, given.sections, given.starts))
    print(json.dumps(found, indent=2))


async def _measure(url: str, pid: int, sections: int, starts: int) -> dict[str, Any]:
    async with await Client.connect(url) as first:
        for kind in (PLAIN, CAPPED, UNIQUE):
            await first.transport.control("POST", "/namespaces", {"name": kind}, idempotent=True)
    clients = {kind: await Client.connect(url, namespace=kind) for kind in (PLAIN, CAPPED, UNIQUE)}
    for scope, name in (("workflow_type", "Order"), ("task_queue", "orders")):
        cap = {"name": name, "max_open_runs": 1_000_000}
        await clients[CAPPED].transport.control("PATCH", f"/run-limits/{scope}", cap, idempotent=True)
    rates: defaultdict[str, list[float]] = defaultdict(list)
    cpu: defaultdict[str, list[float]] = defaultdict(list)
    for section in range(sections + 1):
        for kind, client in clients.items():
            before, began = cpu_seconds(pid), time.perf_counter()
            await _start(client, kind, section, starts)
            took, used = time.perf_counter() - began, cpu_seconds(pid) - before
            if section:  # the first of each kind warms up
                rates[kind].append(starts / took)
                cpu[kind].append(used / starts * 1e6)
    for client in clients.values():
        await client.close()
    by_rate = {kind: spread(each) for kind, each in rates.items()}
    by_cpu = {kind: spread(each, 0) for kind, each in cpu.items()}
    return {
        "starts_per_second": by_rate,
        "server_cpu_us_per_start": by_cpu,
        "rate_of_plain": {
            kind: round(each["median"] / by_rate[PLAIN]["median"], 3) for kind, each in by_rate.items()
        },
        "cpu_of_plain": {
            kind: round(each["median"] / by_cpu[PLAIN]["median"], 3) for kind, each in by_cpu.items()
        },
        "load": load_average(),
    }


async def _start(client: Client, kind: str, section: int, starts: int) -> None:
    numbers = iter(range(starts))

    async def some() -> None:
        for number in numbers:
            key: Any = {"unique_key": f"{section}-{number}"} if kind == UNIQUE else {}
            await client.start_workflow("Order", task_queue="orders", id=f"o-{section}-{number}", **key)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


@contextlib.contextmanager
def _server(folder: str) -> Iterator[tuple[str, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "DW_AUTH_DRIVER": "none",
        "DW_DATABASE_URL": f"sqlite:///{folder}/penstock.db",
        "DW_PORT": str(port),
        "DW_UI": "false",
    }
    command = [sys.executable, "-m", "penstock", "server", "start"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until_open(port, process)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(30)


def _until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server ended with code {process.returncode}")


if __name__ == "__main__":
    main()
