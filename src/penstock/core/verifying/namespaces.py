"""Borders: a lease is counted in scopes of its own namespace, queue and kind, and in nobody else's."""

from __future__ import annotations

from penstock.core.verifying.findings import Book, Finding, Law
from penstock.core.verifying.journal import Granted, Started
from penstock.core.verifying.leases import Live
from penstock.core.verifying.scopes import namespace_of, own_scopes


class Namespaces:
    """Holds "namespace" against every lease and every scope it is counted in."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._fits: dict[tuple[str, str, str, str], bool] = {}

    def taken(self, line: Granted | Started, live: Live) -> None:
        grant = live.grant
        for limits in live.counted:
            self._book.checked[Law.NAMESPACE] += 1
            if not self._fit(grant, limits.scope):
                where = f"{grant.namespace}/{grant.task_queue}/{grant.kind}"
                said = f"task {grant.task_id} of {where} is counted where it does not belong"
                self._book.find(Finding(Law.NAMESPACE, said, line.at_ms, line.seq, limits.scope))

    def _fit(self, grant: Granted, scope: str) -> bool:
        """Kept by name: there are few, and they come again and again."""
        place = grant.namespace, grant.task_queue, grant.kind, scope
        fits = self._fits.get(place)
        if fits is None:
            fits = self._fits[place] = _belongs(*place)
        return fits


def _belongs(namespace: str, task_queue: str, kind: str, scope: str) -> bool:
    if scope.startswith(("queue:", "namespace:", "cluster")):
        return scope in own_scopes(namespace, task_queue, kind)
    return namespace_of(scope) in (None, namespace)
