"""What steps of one kind took: how long each, how many in a second, and what server and database spent on them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.processes import cpu_of, load_average
from benchmarks.samples import loads, ratio, spread
from benchmarks.stands import Stand, StoreName

Step = Callable[[], Awaitable[object]]


@dataclass(slots=True)
class Took:
    """Some steps of one kind."""

    pids: Mapping[str, int]
    milliseconds: list[float] = field(default_factory=list)
    """Of each step, in the order in which they ended."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of server and database."""
    load: float = 0.0
    done: int = 0
    """Tasks, signals or pages: a step may be for several."""

    @property
    def per_second(self) -> float:
        return self.done / self.seconds

    @property
    def cpu_ms(self) -> float:
        """For each that was done."""
        return self.cpu_seconds * 1000 / self.done

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """What happens inside counts: its time, and the CPU time of the processes."""
        began, cpu = time.perf_counter(), sum(cpu_of(self.pids).values())
        yield
        self.seconds += time.perf_counter() - began
        self.cpu_seconds += sum(cpu_of(self.pids).values()) - cpu
        self.load = load_average()

    async def step(self, step: Awaitable[Any], done: int = 1) -> Any:
        """One step, to be measured on its own as well."""
        began = time.perf_counter()
        found = await step
        self.milliseconds.append((time.perf_counter() - began) * 1000)
        self.done += done
        return found


async def in_turn(stand: Stand, steps: Iterable[Step]) -> Took:
    """One step after the other."""
    took = Took(stand.pids)
    with took.whole():
        for step in steps:
            await took.step(step())
    return took


async def at_once(stand: Stand, steps: Iterable[Step], connections: int) -> Took:
    """As many steps at a time as there are connections."""
    took, left = Took(stand.pids), iter(steps)

    async def loop() -> None:
        for step in left:
            await took.step(step())

    with took.whole():
        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(loop())
    return took


def row(
    store: StoreName, part: str, what: str, size: int, tooks: Sequence[Took], beside: Sequence[Took] = ()
) -> dict[str, Any]:
    """What is reported of equal steps, beside those that they are compared with."""
    return {
        "store": store.value,
        "part": part,
        "what": what,
        "size": size,
        "ms": spread((each for took in tooks for each in took.milliseconds), 2),
        "per_second": spread(took.per_second for took in tooks),
        "cpu_ms": spread((took.cpu_ms for took in tooks), 3),
        "ratios": {
            "time": _compared(tooks, beside, lambda took: took.seconds / took.done),
            "cpu": _compared(tooks, beside, lambda took: took.cpu_ms),
        },
        "load": loads(took.load for took in tooks),
    }


def _compared(tooks: Sequence[Took], beside: Sequence[Took], figure: Callable[[Took], float]) -> float | None:
    """One to the other, each as the median of its repetitions."""
    if not beside:
        return None
    one, other = (spread((figure(took) for took in each), 9)["median"] for each in (tooks, beside))
    return ratio(one, other)
