"""One of several servers on a database, without its HTTP: a process that claims from queues of its own and completes.

Orders are lines of JSON on stdin, what they took goes to stdout.
"""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import uvloop
from msgspec import Struct

from benchmarks.limited_lines import LimitedLines, Limits, limited_lines
from benchmarks.processes import own_cpu_seconds
from benchmarks.stands import StoreName

QUEUES = 4


class Order(Struct, frozen=True):
    dispatches: int
    batch: int
    limits: Limits
    """Those that are in force already."""


class Outcome(Struct, frozen=True):
    tasks: int
    began: float
    ended: float
    """By the clock that all processes of a machine share."""
    cpu_seconds: float


async def carry_out(lines: LimitedLines, order: Order) -> Outcome:
    """Each queue is served by a loop of its own: claim, complete, claim again."""
    lines.expect(order.limits)
    cpu, began = own_cpu_seconds(), time.monotonic()
    taken = await asyncio.gather(
        *(lines.serve(queue, order.batch, order.dispatches // QUEUES) for queue in lines.queues)
    )
    ended, cpu = time.monotonic(), own_cpu_seconds() - cpu
    for tasks in taken:
        await lines.refill(tasks)
    return Outcome(sum(len(tasks) for tasks in taken), began, ended, cpu)


async def main(url: str, name: str, fill: int) -> None:
    async with limited_lines(StoreName.POSTGRES, url, QUEUES, name) as lines:
        await lines.fill(fill)
        _tell(b"{}")
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            outcome = await carry_out(lines, msgspec.json.decode(line, type=Order))
            _tell(msgspec.json.encode(outcome))


def _tell(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
