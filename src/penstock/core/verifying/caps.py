"""Caps, as the journal tells them: looked at whenever a lease takes a place. A lowered cap only stops new ones."""

from __future__ import annotations

from penstock.core.verifying.findings import Book, Finding, Law, kept
from penstock.core.verifying.journal import Granted, ScopeLimits, Started
from penstock.core.verifying.leases import Leases, Live


class Caps:
    """Holds "cap" and "closed" against every lease that takes a place."""

    def __init__(self, book: Book, leases: Leases) -> None:
        self._book = book
        self._leases = leases

    def taken(self, line: Granted | Started, live: Live) -> None:
        for limits in live.counted:
            if 0 in (limits.max_active_leases, limits.max_dispatches_per_minute):
                self._is_closed(line, limits)
            else:
                self._is_held(line, limits)

    def _is_held(self, line: Granted | Started, limits: ScopeLimits) -> None:
        cap = limits.max_active_leases
        if cap is None:
            return
        self._book.checked[Law.CAP] += 1
        holders = self._leases.holders(limits.scope)
        if len(holders) > cap:
            self._book.find(
                Finding(
                    Law.CAP,
                    f"{len(holders)} leases live where {cap} may",
                    line.at_ms,
                    line.seq,
                    limits.scope,
                    len(holders),
                    cap,
                    kept(live.holder for live in holders.values()),
                )
            )

    def _is_closed(self, line: Granted | Started, limits: ScopeLimits) -> None:
        self._book.checked[Law.CLOSED] += 1
        self._book.find(
            Finding(
                Law.CLOSED,
                f"task {line.task_id} was given out of a scope with a limit of zero",
                line.at_ms,
                line.seq,
                limits.scope,
                1,
                0,
            )
        )
