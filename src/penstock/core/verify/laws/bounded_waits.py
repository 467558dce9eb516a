"""Bounded waiting: where a queue ages its tasks, every n-th dispatch goes to a level that starves.

A level starves when one of its tasks has waited for longer than the queue's aging, and a level before it is served.
From then on at most n - 1 dispatches in a row may go to the first level that has tasks; the n-th is that of a starving
level. If several starve, the turn may be that of any: a dispatch to a level that is not the first was such a turn. The
longest wait of G11 follows from these turns, so the turns are checked and not the wait, whose bound depends on the
rate of dispatch. One dispatch more is allowed, because a claim and this check may see a task become old at different
milliseconds. Queues without aging promise nothing: levels are strict there.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import LeaseGranted, QueuePlace, TaskReady
from penstock.core.verify.waiting_tasks import VISIBLE_MS, WaitingTasks, first_of


class BoundedWaitingLaw:
    """Checks "bounded-waiting" for every grant of a queue with aging."""

    def __init__(self, book: Findings, waiting: WaitingTasks) -> None:
        self._book = book
        self._waiting = waiting
        self._turns: dict[QueuePlace, int] = {}
        """Dispatches in a row to levels before a starving one."""

    def restart(self) -> None:
        """Begin again: settings have changed, or the clock was set."""
        self._turns.clear()

    def granted(self, line: LeaseGranted) -> None:
        place = line.namespace, line.task_queue, line.kind
        if line.aging is None or line.level is None or not self._waiting.are_interchangeable(place):
            self._turns.pop(place, None)
            return
        wait_ms, every = line.aging
        levels = self._waiting.levels.get(place, {})
        starving = self._longest(levels, line.level, line.at_ms - wait_ms - VISIBLE_MS)
        if starving is None:
            self._turns.pop(place, None)
            return
        self._book.checked[Law.BOUNDED_WAITING] += 1
        if any(tasks for level, tasks in levels.items() if level < line.level):
            self._turns.pop(place, None)
            return
        turns = self._turns[place] = self._turns.get(place, 0) + 1
        if turns <= every:
            return
        self._turns[place] = 0
        message = (
            f"task {starving.task_id} of level {starving.level} has waited for {line.at_ms - starving.at_ms} ms, and "
            f"{turns} dispatches in a row went to levels before it, of which every {every}th is not theirs"
        )
        self._book.find(LawViolation(Law.BOUNDED_WAITING, message, line.at_ms, line.seq))

    def _longest(
        self, levels: Mapping[int, Mapping[str, TaskReady]], granted: int, before_ms: int
    ) -> TaskReady | None:
        """The task behind a level that has waited longest, if it became ready before a time."""
        behind = [first_of(tasks) for level, tasks in levels.items() if level > granted and tasks]
        old = [task for task in behind if task is not None and task.at_ms < before_ms]
        return min(old, key=lambda task: task.seq, default=None)
