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
    """Fill, measure beside those that wait, drain, measure beside those that have ended."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say
        self._outcomes: dict[tuple[StoreName, str, str], list[Outcome]] = defaultdict(list)

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        with contextlib.ExitStack() as stack:
            self._say(f"filling {self._sizes.few} and {self._sizes.many} waiting tasks")
            pairs = [self._pair(store, stack) for store in stores]
            self._measure(pairs, {WAITING_HERE: CROWD, WAITING_ELSEWHERE: ELSEWHERE})
            self._say("draining them")
            self._drain(pairs)
            self._measure(pairs, {FINISHED: CROWD})
        cases = (WAITING_HERE, WAITING_ELSEWHERE, FINISHED)
        return [self._compared(store, case) for store in stores for case in cases]

    def _pair(self, store: StoreName, stack: contextlib.ExitStack) -> _Pair:
        few, many = (
            stack.enter_context(serving(store, self._ground, self._crowded(store, count)))
            for count in (self._sizes.few, self._sizes.many)
        )
        return _Pair(few, many)

    def _crowded(self, store: StoreName, count: int) -> str:
        """The URL of a database in which `count` tasks wait: one that was started, and copies of it."""
        url = new_store(store, self._ground)
        with serving(store, self._ground, url) as server:
            server.send(Order(Kind.FILL, "", 1, queue=CROWD))
        if store is StoreName.SQLITE:
            grow_sqlite(Path(url.removeprefix("sqlite:///")), count - 1)
        else:
            grow_postgres(url, count - 1)
        return url

    def _drain(self, pairs: Sequence[_Pair]) -> None:
        """Let workers finish all that waits: every copy must be as good as a task that was started."""
        running = [
            server.begin(Order(Kind.DRAIN, "", 0, batch=DRAIN_BATCH, queue=CROWD))
            for pair in pairs
            for server in (pair.few, pair.many)
        ]
        counts = [each.finish().count for each in running]
        for count, size in zip(counts, [self._sizes.few, self._sizes.many] * len(pairs), strict=True):
            # Measurements before this one may have completed a few tasks more than they started.
            assert count > size * 0.9 - self._sizes.scaled, f"drained {count} of {size}"

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
