"""Caps on runs: who holds a place in a scope, and who waits in its line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from penstock.core.limits.admission import ScopeRow
from penstock.core.limits.policies import Policy
from penstock.core.model import Run, RunId
from penstock.ports.tables.visibility import PageStart


class RunPlace(Struct, frozen=True):
    """A run in a scope: it holds a place there, or waits in line."""

    run_id: RunId
    scope_id: int
    level: int
    ready_at_ms: int
    """Of a run that waits: when its first workflow task may be ready at the earliest."""
    seq: int
    """Order of arrival, in the whole database."""


class RunPlaces(Protocol):
    """Lines and places are changed under the lock of their scope; places are ended without one."""

    async def policies(self, names: Sequence[str]) -> Mapping[str, Policy]:
        """The settings of those scopes that have a row."""
        ...

    async def rows_of(self, namespace: str) -> Sequence[ScopeRow]:
        """The scopes of a namespace with settings of their own, by name."""
        ...

    async def next_namespace(self, after: str) -> str | None:
        """The next namespace, by name, in which anything ever had a cap on runs."""
        ...

    async def hold(self, scope_ids: Sequence[int]) -> None:
        """Lock scopes until the commit, so that no other operation even of the same transaction changes their lines."""
        ...

    async def lines(self, scope_ids: Sequence[int]) -> Sequence[bool]:
        """Whether runs wait in the line of each scope."""
        ...

    async def line(self, scope_id: int, limit: int) -> Sequence[RunPlace]:
        """The first runs that wait in a line, in order."""
        ...

    async def holders(self, scope_id: int, limit: int) -> Sequence[RunPlace]:
        """The runs that hold a place in a scope, the oldest first."""
        ...

    async def counts(self, scope_ids: Sequence[int]) -> Sequence[tuple[int, int]]:
        """How many runs hold a place in each scope, and how many wait in its line, by their rows."""
        ...

    async def ahead(self, place: RunPlace) -> Sequence[tuple[int, int]]:
        """By priority level, how many runs are ahead of one that waits, in the same line."""
        ...

    async def waiting(self, run_id: RunId) -> RunPlace | None:
        """Where a run waits."""
        ...

    async def next_line(self, after: int) -> int | None:
        """The next scope, by id, in whose line a run waits."""
        ...

    async def standing_lines(self, namespace: str) -> Sequence[int]:
        """The scopes of a namespace, by id, in whose lines runs wait."""
        ...

    async def open_runs(self, namespace: str, after: PageStart | None, limit: int) -> Sequence[PageStart]:
        """The open workflow runs of a namespace, by start."""
        ...

    def wait(self, run: Run, scope_id: int, ready_at_ms: int) -> None:
        """Put a run at the end of a line."""
        ...

    def take(self, run: Run, scope_ids: Sequence[int]) -> None:
        """Record the places of a run. The counters of the scopes are settled by the caller."""
        ...

    def move(self, run_id: RunId, scope_id: int) -> None:
        """Move a run to the line of another scope; it keeps its place by arrival."""
        ...

    def postpone(self, run_id: RunId, ready_at_ms: int) -> None:
        """Change when a run that waits in a line may be ready at the earliest."""
        ...

    def drop(self, run_id: RunId) -> None:
        """Delete the places of a run, and its place in a line."""
        ...

    def hand_on(self, run_id: RunId, successor: RunId) -> None:
        """Give the places of a run to its successor."""
        ...

    def end(self, scope_ids: Sequence[int]) -> None:
        """Count one place less in each scope."""
        ...
