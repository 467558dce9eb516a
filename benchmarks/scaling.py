"""Whether a task costs more when many others wait or have ended: the same small work beside few and many."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.crowds import grow_postgres, grow_sqlite
from benchmarks.samples import cpu_ms, loads, rates, ratio
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.work import Kind, Order, Outcome
from benchmarks.workload_loops import LOOPS
from benchmarks.workloads import Say

CROWD = "crowd"
"""The queue in which the others wait; the measured work is in it or in a queue of its own."""
ELSEWHERE = "elsewhere"
IN_FLIGHT = 20
DRAIN_BATCH = 100

WAITING_HERE = "others wait in the same queue"
WAITING_ELSEWHERE = "others wait in another queue"
FINISHED = "others have ended"


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two servers of one store: beside few others, and beside many."""

    few: Stand
    many: Stand


class Scaling:
    """Measure beside those that wait, then, on other servers, beside those that have ended."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say
        self._outcomes: dict[tuple[StoreName, str, str], list[Outcome]] = defaultdict(list)

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        with contextlib.ExitStack() as stack:
            pairs = [self._pair(store, stack, waiting=True) for store in stores]
            self._measure(pairs, {WAITING_HERE: CROWD, WAITING_ELSEWHERE: ELSEWHERE})
            self._drain([pair.few for pair in pairs])
        with contextlib.ExitStack() as stack:
            pairs = [self._pair(store, stack, waiting=False) for store in stores]
            self._measure(pairs, {FINISHED: CROWD})
        cases = (WAITING_HERE, WAITING_ELSEWHERE, FINISHED)
        return [self._compared(store, case) for store in stores for case in cases]

    def _pair(self, store: StoreName, stack: contextlib.ExitStack, *, waiting: bool) -> _Pair:
        state = "waiting" if waiting else "finished"
        self._say(f"{store.value}: {self._sizes.few} and {self._sizes.many} {state} tasks")
        few, many = (
            stack.enter_context(serving(store, self._ground, self._crowded(store, count, waiting=waiting)))
            for count in (self._sizes.few, self._sizes.many)
        )
        return _Pair(few, many)

    def _crowded(self, store: StoreName, count: int, *, waiting: bool) -> str:
        """The URL of a database with that many tasks: one that was started or finished, and copies of it."""
        url = new_store(store, self._ground)
        with serving(store, self._ground, url) as server:
            server.send(Order(Kind.FILL if waiting else Kind.ACTIVITIES, "", 1, queue=CROWD))
        if store is StoreName.SQLITE:
            grow_sqlite(Path(url.removeprefix("sqlite:///")), count - 1)
        else:
            grow_postgres(url, count - 1)
        return url

    def _drain(self, servers: Sequence[Stand]) -> None:
        """Let workers finish all that waits beside the few: copies must be as good as tasks that were started."""
        for server in servers:
            drained = server.send(Order(Kind.DRAIN, "", 0, batch=DRAIN_BATCH, queue=CROWD)).count
            # Each measurement may have completed some tasks more than it started: those in flight at its end.
            spare = self._sizes.repetitions * LOOPS
            assert drained > self._sizes.few - spare, f"only {drained} of {self._sizes.few} could be drained"

    def _measure(self, pairs: Sequence[_Pair], queues: dict[str, str]) -> None:
        for number in range(1, self._sizes.repetitions + 1):
            for case, queue in queues.items():
                self._say(f"repetition {number}: {case}")
                for pair in pairs:
                    for side, server in (("few", pair.few), ("many", pair.many)):
                        order = Order(
                            Kind.ACTIVITIES, "", self._sizes.scaled, in_flight=IN_FLIGHT, queue=queue
                        )
                        self._outcomes[server.store, case, side].append(server.send(order))

    def _compared(self, store: StoreName, case: str) -> dict[str, Any]:
        few, many = (self._outcomes[store, case, side] for side in ("few", "many"))
        return {
            "store": store.value,
            "name": case,
            "few": self._sizes.few,
            "many": self._sizes.many,
            "per_second": {"few": rates(few), "many": rates(many)},
            "cpu_ms": {"few": cpu_ms(few), "many": cpu_ms(many)},
            "ratios": {
                "rate, many to few": ratio(rates(many)["median"], rates(few)["median"]),
                "CPU of server and database, many to few": ratio(_behind_http(many), _behind_http(few)),
            },
            "load": loads(each.load for each in (*few, *many)),
        }


def _behind_http(outcomes: list[Outcome]) -> float:
    """CPU milliseconds per task without the client's."""
    return sum(value["median"] for name, value in cpu_ms(outcomes).items() if name != "client")
