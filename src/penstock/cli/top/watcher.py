"""Asks the server in the background, so that keys are answered at once however slow the server is.

After an answer the next question waits for the interval, or ten times as long as the answer took: looking must not slow
down what is looked at. A failed question is asked again; the last answer stays, and its age is shown.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from penstock.cli.output.exits import CommandError
from penstock.cli.top.rates import QueueRates
from penstock.cli.top.snapshot import QueueDetail, QueueRow, queue_details, queue_rows
from penstock.cli.top.state import RowName
from penstock.cli.transport.connection import ServerConnection

_PATIENCE_FACTOR = 10


@dataclass(frozen=True, slots=True)
class TopAnswer:
    """The last answers of the server, when they came, and what went wrong since then."""

    rows: Sequence[QueueRow]
    detail: QueueDetail | None
    as_of: datetime
    trouble: str | None = None


def ask(connection: ServerConnection, wanted: RowName | None, rates: QueueRates) -> TopAnswer:
    """All queues, and one of them in detail."""
    rows = rates.rated(queue_rows(connection.get("task-queues").body), time.monotonic())
    detail = None
    if wanted is not None:
        described = connection.get("task-queues", wanted[0], accept=(404,))
        if described.status != 404:
            detail = queue_details(described.body, datetime.now(UTC))[wanted[1]]
            known = next((row for row in rows if row.name == wanted), detail.row)
            detail = replace(detail, row=_with_rates(detail.row, known))
    return TopAnswer(rows, detail, datetime.now(UTC))


def _with_rates(row: QueueRow, known: QueueRow) -> QueueRow:
    return replace(
        row,
        added_per_second=known.added_per_second,
        dispatched_per_second=known.dispatched_per_second,
    )


class TopWatcher:
    """A thread that keeps `answer` fresh and writes a byte to `ready` when it changed."""

    def __init__(
        self, connection: ServerConnection, first: TopAnswer, rates: QueueRates, interval_seconds: float
    ) -> None:
        self.answer = first
        self.wanted: RowName | None = None
        self._connection = connection
        self._rates = rates
        self._interval_seconds = interval_seconds
        self._wake = threading.Event()
        self._is_over = False
        self._is_paused = False
        self.ready, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> TopWatcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The thread may wait for an answer that never comes; it is a daemon and ends with the process.
        self._is_over = True
        self._wake.set()

    def look(self, wanted: RowName | None, *, is_paused: bool) -> None:
        """Change what is asked; another queue is asked for at once."""
        changed = wanted != self.wanted or is_paused != self._is_paused
        self.wanted, self._is_paused = wanted, is_paused
        if changed:
            self._wake.set()

    def _watch(self) -> None:
        while not self._is_over:
            wait = self._interval_seconds
            if not self._is_paused:
                began = time.monotonic()
                self._ask()
                wait = max(wait, (time.monotonic() - began) * _PATIENCE_FACTOR)
                self._ring()
            self._wake.wait(None if self._is_paused else wait)
            self._wake.clear()

    def _ask(self) -> None:
        try:
            self.answer = ask(self._connection, self.wanted, self._rates)
        except CommandError as problem:
            self.answer = replace(self.answer, trouble=problem.message)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._bell, b".")
