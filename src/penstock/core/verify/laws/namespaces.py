"""Isolation: a lease counts only in scopes of its own namespace, queue and kind."""

from __future__ import annotations

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import LeaseGranted, LeaseStarted
from penstock.core.verify.live_leases import LiveLease
from penstock.core.verify.scopes import namespace_of, own_scopes


class NamespaceLaw:
    """Checks "namespace" for every lease and every scope that counts it."""

    def __init__(self, book: Findings) -> None:
        self._book = book
        self._fits: dict[tuple[str, str, str, str], bool] = {}

    def taken(self, line: LeaseGranted | LeaseStarted, live: LiveLease) -> None:
        grant = live.grant
        for limits in live.counted:
            self._book.checked[Law.NAMESPACE] += 1
            if not self._fit(grant, limits.scope):
                where = f"{grant.namespace}/{grant.task_queue}/{grant.kind}"
                said = f"task {grant.task_id} of {where} is counted where it does not belong"
                self._book.find(LawViolation(Law.NAMESPACE, said, line.at_ms, line.seq, limits.scope))

    def _fit(self, grant: LeaseGranted, scope: str) -> bool:
        """Cached by name: there are few different ones."""
        place = grant.namespace, grant.task_queue, grant.kind, scope
        fits = self._fits.get(place)
        if fits is None:
            fits = self._fits[place] = _belongs(*place)
        return fits


def _belongs(namespace: str, task_queue: str, kind: str, scope: str) -> bool:
    if scope.startswith(("queue:", "namespace:", "cluster")):
        return scope in own_scopes(namespace, task_queue, kind)
    return namespace_of(scope) in (None, namespace)
