"""Order of arrival: among tasks of one queue, kind, level, key and type, the first acknowledged is granted first."""

from __future__ import annotations

from collections import defaultdict

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import LeaseGranted
from penstock.core.verify.observations import StartSent
from penstock.core.verify.observed_leases import ObservedLeases

ArrivalGroup = tuple[str, str | None, str, int | None, str | None, str | None]


class ArrivalOrderLaw:
    """Checks "fifo" for the first grants of tasks whose starts were observed with their priority."""

    def __init__(self, book: Findings, seen: ObservedLeases) -> None:
        self._book = book
        self._starts: dict[str, StartSent] = {
            start.task_id: start
            for start in seen.starts
            if start.task_id is not None and start.task_queue is not None and start.verdict == "accepted"
        }
        self._first: dict[str, LeaseGranted] = {}

    def granted(self, line: LeaseGranted) -> None:
        if line.task_id in self._starts:
            self._first.setdefault(line.task_id, line)

    def finish(self) -> None:
        standings: dict[ArrivalGroup, list[tuple[StartSent, LeaseGranted]]] = defaultdict(list)
        for task_id, line in self._first.items():
            start = self._starts[task_id]
            standings[_standing(start)].append((start, line))
        for together in standings.values():
            self._in_order(together)

    def _in_order(self, together: list[tuple[StartSent, LeaseGranted]]) -> None:
        by_answer = sorted((pair for pair in together if pair[0].t_ok is not None), key=_answered)
        latest: LeaseGranted | None = None
        index = 0
        for start, line in sorted(together, key=lambda pair: pair[0].t_inv):
            while index < len(by_answer) and _answered(by_answer[index]) < start.t_inv:
                earlier = by_answer[index][1]
                latest = earlier if latest is None or earlier.seq > latest.seq else latest
                index += 1
            self._book.checked[Law.FIFO] += 1
            if latest is not None and latest.seq > line.seq:
                said = f"task {line.task_id} was granted before task {latest.task_id}, which came first"
                self._book.find(LawViolation(Law.FIFO, said, line.at_ms, line.seq))


def _answered(pair: tuple[StartSent, LeaseGranted]) -> float:
    assert pair[0].t_ok is not None
    return pair[0].t_ok


def _standing(start: StartSent) -> ArrivalGroup:
    return start.namespace, start.task_queue, start.kind, start.level, start.key, start.type
