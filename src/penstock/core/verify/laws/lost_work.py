"""No lost work: acknowledged starts are found at the end, and nothing waits that could run.

Checked only if the clients observed that the system had come to rest.
"""

from __future__ import annotations

from math import inf

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import ScopeLimits
from penstock.core.verify.live_leases import LiveLeases
from penstock.core.verify.observations import ObservedFinal
from penstock.core.verify.observed_leases import ObservedLeases
from penstock.core.verify.scopes import own_scopes

GONE = ("missing", "not_found", "unknown")


class LostWorkLaw:
    """Checks "lost" for acknowledged starts and final states."""

    def __init__(self, book: Findings, seen: ObservedLeases, leases: LiveLeases) -> None:
        self._book = book
        self._seen = seen
        self._leases = leases

    def finish(self) -> None:
        if not self._seen.is_quiescent:
            return
        there = {
            _name(final.task_id, final.workflow_id) for final in self._seen.finals if final.state not in GONE
        }
        for start in self._seen.starts:
            if start.verdict == "accepted":
                self._book.checked[Law.LOST] += 1
                name = _name(start.task_id, start.workflow_id)
                if name not in there:
                    said = f"{' '.join(name)} was acknowledged and is missing"
                    self._book.find(LawViolation(Law.LOST, said, start.t_ok))
        for final in self._seen.finals:
            self._moves(final)

    def _moves(self, final: ObservedFinal) -> None:
        self._book.checked[Law.LOST] += 1
        name = " ".join(_name(final.task_id, final.workflow_id))
        if (
            final.state == "ready"
            and final.task_queue is not None
            and self._could_go(final, final.task_queue)
        ):
            self._book.find(LawViolation(Law.LOST, f"{name} is ready and waits though nothing is full"))
        if final.state != "leased" and final.task_id is not None:
            self._holds_nothing(final.task_id, final.state)

    def _holds_nothing(self, task_id: str, state: str) -> None:
        """Check that no lease of a finished task is still live, using up its scopes forever."""
        live = self._leases.of_task.get(task_id)
        self._book.checked[Law.ENDS_ONCE] += 1
        if live is not None:
            said = f"task {task_id} is {state}, and its lease of number {live.grant.seq} never ended"
            self._book.find(LawViolation(Law.ENDS_ONCE, said, holders=(live.holder,)))

    def _could_go(self, final: ObservedFinal, task_queue: str) -> bool:
        limits = self._leases.lines.get((final.namespace, task_queue, final.kind), ())
        own = own_scopes(final.namespace, task_queue, final.kind)
        names = {*own, *(each.scope for each in limits)}
        return all(self._is_open(name) for name in names) and all(self._has_room(each) for each in limits)

    def _is_open(self, scope: str) -> bool:
        """Whether a scope is open, as operators left it; a limit that may be in force counts as in force."""
        changes = self._seen.changes
        if True in (changes.possible(scope, "paused", inf, inf) or ()):
            return False
        leases = changes.possible(scope, "max_active_leases", inf, inf) or ()
        rates = changes.possible(scope, "max_dispatches_per_minute", inf, inf) or ()
        least = min((each for each in leases if each is not None), default=inf)
        return 0 not in rates and len(self._leases.holders(scope)) < float(least)

    def _has_room(self, limits: ScopeLimits) -> bool:
        """Whether a scope has capacity, as of the queue's last grant, unless operators changed it since."""
        if self._seen.changes.possible(limits.scope, "max_active_leases", inf, inf) is not None:
            return True
        cap = inf if limits.max_active_leases is None else limits.max_active_leases
        return len(self._leases.holders(limits.scope)) < cap


def _name(task_id: str | None, workflow_id: str | None) -> tuple[str, str]:
    return ("workflow", workflow_id) if workflow_id is not None else ("task", task_id or "?")
