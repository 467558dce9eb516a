"""Whether a task costs more when many others wait or have ended: the same small work beside few and many."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.samples import cpu_ms, loads, rates, ratio
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, stand
from benchmarks.work import Kind, Order, Outcome
from benchmarks.workloads import Say

CROWD = "crowd"
"""The queue in which the others wait; the measured work is in it or in a queue of its own."""
ELSEWHERE = "elsewhere"
IN_FLIGHT = 20
FILL_BATCH = 100

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
            pairs = [
                _Pair(*(stack.enter_context(stand(store, self._ground)) for _ in "ab")) for store in stores
            ]
            self._say(f"filling {self._sizes.few} and {self._sizes.many} waiting tasks")
            self._everywhere(pairs, Kind.FILL)
            self._measure(pairs, {WAITING_HERE: CROWD, WAITING_ELSEWHERE: ELSEWHERE})
            self._say("draining them")
            self._everywhere(pairs, Kind.DRAIN)
            self._measure(pairs, {FINISHED: CROWD})
        cases = (WAITING_HERE, WAITING_ELSEWHERE, FINISHED)
        return [self._compared(store, case) for store in stores for case in cases]

    def _everywhere(self, pairs: Sequence[_Pair], kind: Kind) -> None:
        """Fill or drain all servers at once; this is preparation and not a measurement."""
        running = [
            server.begin(Order(kind, "", count, in_flight=400, batch=FILL_BATCH, queue=CROWD))
            for pair in pairs
            for server, count in ((pair.few, self._sizes.few), (pair.many, self._sizes.many))
        ]
        for each in running:
            each.finish()

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
