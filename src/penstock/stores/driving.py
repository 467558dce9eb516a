"""What every store does alike with an operation: a job, its outcome, and the moments around a commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from penstock.errors import PenstockError
from penstock.ports.store import Tx
from penstock.ports.wakeups import Bell
from penstock.stores.sql.catalogue import Statement
from penstock.stores.sql.known import Known
from penstock.stores.sql.session import Session


class Moment(StrEnum):
    """Where a crash test may strike."""

    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"


OnMoment = Callable[[Moment], None]


def undisturbed(_: Moment) -> None:
    """What production does around a commit: nothing."""


@dataclass(slots=True)
class Job:
    """One operation on its way through the store, and the future of the caller who waits for it."""

    operation: Callable[[Tx], Coroutine[Any, Any, Any]]
    key: str
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    bells: Mapping[Bell, None] = field(default_factory=dict)
    learned: Known = field(default_factory=Known)
    acted: bool = False
    """Whether it has reserved something before its end."""
    stands_back: bool = False
    """Whether it met another operation's lock and must run in a later group."""

    def begin_again(self) -> None:
        self.result, self.error, self.bells, self.learned = None, None, {}, Known()
        self.acted = self.stands_back = False

    def ended(self, session: Session) -> None:
        """The operation has ended well: keep what is to be told once it is committed."""
        self.bells, self.learned = session.bells, session.learned

    def answer(self) -> None:
        """Tell the caller; one who has gone away is not told."""
        if self.future.done():
            return
        if isinstance(self.error, PenstockError):
            self.future.set_exception(self.error.with_details())
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class ReadOnlySession(Session):
    """A session whose operation may ask but not record."""

    def record(self, name: str, *values: Any) -> None:
        raise RuntimeError(f"a read tried to record {name!r}: use transact")


def ordered_writes(sessions: list[Session]) -> list[tuple[Statement, list[tuple[Any, ...]]]]:
    """All writes of some sessions, equal statements together, in the one order that every node keeps."""
    merged: dict[Statement, list[tuple[Any, ...]]] = {}
    for session in sessions:
        for statement, rows in session.writes.items():
            merged.setdefault(statement, []).extend(rows)
    return sorted(merged.items(), key=lambda each: each[0].rank)
