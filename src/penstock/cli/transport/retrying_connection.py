"""Retries requests of long commands while the server is away, for example during a restart."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from penstock.cli.output.exits import CommandError, RequestRefused, ServerUnreachable, echo_err
from penstock.cli.transport.connection import ServerConnection, ServerResponse
from penstock.cli.transport.wait import backoff_delays

PATIENCE_SECONDS = 300.0
"""How long a server may be unreachable."""

_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
_PASSING_STATUSES = frozenset({429, 502, 503})


class RetryingConnection:
    """Sends idempotent requests. The first must succeed; later ones are retried with backoff."""

    def __init__(self, connection: ServerConnection, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._connection = replace(connection, on_refusal=None)
        self._on_refusal = connection.on_refusal
        self._patience_seconds = patience_seconds
        self._was_answered = False

    def ask(self, request: Callable[[ServerConnection], ServerResponse]) -> ServerResponse:
        """Send a request until it is answered, or until the server was unreachable for too long."""
        gone_at: float | None = None
        for pause in backoff_delays(_PAUSES):
            try:
                answer = request(self._connection)
            except (RequestRefused, ServerUnreachable) as problem:
                gone_at = self._borne(problem, gone_at)
            else:
                if gone_at is not None:
                    echo_err("The server answers again.")
                self._was_answered = True
                return answer
            time.sleep(pause)
        raise AssertionError("the pauses never end")

    def _borne(self, problem: CommandError, gone_at: float | None) -> float:
        """The time since which the server is away, if the problem is transient; else raise it."""
        now = time.monotonic()
        since = now if gone_at is None else gone_at
        if not self._was_answered or not _may_pass(problem) or now - since > self._patience_seconds:
            if isinstance(problem, RequestRefused) and self._on_refusal is not None:
                self._on_refusal(problem.text)
            raise problem
        if gone_at is None:
            echo_err(f"{problem.message} Retrying …")
        return since


def _may_pass(problem: CommandError) -> bool:
    return isinstance(problem, ServerUnreachable) or (
        isinstance(problem, RequestRefused) and problem.status in _PASSING_STATUSES
    )
