"""Caps on runs in the journal, checked whenever a run is admitted. Runs that were open before a cap only count."""

from __future__ import annotations

from collections import defaultdict

from penstock.core.verify.findings import Findings, Law, LawViolation
from penstock.core.verify.journal import RunAdmitted, RunClosed


class RunCapLaw:
    """Checks "run-cap". A chain of runs is known by its first run, and holds its places until its last one closes."""

    def __init__(self, book: Findings) -> None:
        self._book = book
        self._open: defaultdict[str, set[str]] = defaultdict(set)
        """By scope, the chains that hold a place."""
        self._scopes: defaultdict[str, set[str]] = defaultdict(set)
        """By chain, its scopes."""

    def admitted(self, line: RunAdmitted) -> None:
        for limit in line.scopes:
            holders = self._open[limit.scope]
            holders.add(line.run_id)
            self._scopes[line.run_id].add(limit.scope)
            if line.adopted:
                continue
            self._book.checked[Law.RUN_CAP] += 1
            if len(holders) > limit.max_open_runs:
                self._book.find(
                    LawViolation(
                        Law.RUN_CAP,
                        f"{line.run_id} started as number {len(holders)} of at most {limit.max_open_runs} open runs",
                        line.at_ms,
                        line.seq,
                        limit.scope,
                        len(holders),
                        limit.max_open_runs,
                    )
                )

    def closed(self, line: RunClosed) -> None:
        for scope in self._scopes.pop(line.run_id, ()):
            self._open[scope].discard(line.run_id)
