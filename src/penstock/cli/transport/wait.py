"""Waits until something is closed; Ctrl-C ends the wait."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.cli.output.exits import CommandInterrupted
from penstock.cli.transport.connection import ServerConnection, ServerResponse

LOOK_AGAIN_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Poll intervals while something is not closed; the last one repeats."""

_ENDS = frozenset({"completed", "failed", "cancelled", "canceled", "terminated", "timed_out"})


def is_closed(body: dict[str, Any]) -> bool:
    """Whether the described thing has ended."""
    return bool(body.get("is_terminal")) or body.get("status") in _ENDS


def wait_until_closed(
    connection: ServerConnection, *path: str, query: Mapping[str, object] | None = None
) -> ServerResponse:
    """Poll until it is closed, whatever its outcome."""
    for pause in backoff_delays(LOOK_AGAIN_SECONDS):
        answer = connection.get(*path, query=query)
        if is_closed(answer.body):
            return answer
        time.sleep(pause)
    raise AssertionError("the pauses never end")


def backoff_delays(seconds: tuple[float, ...]) -> Iterator[float]:
    """These pauses one after another, the last one again and again."""
    return itertools.chain(seconds, itertools.repeat(seconds[-1]))


@contextmanager
def interruptible(message: str, advice: Callable[[], str] = str) -> Iterator[None]:
    """Turn Ctrl-C in the block into exit code 130 with a message and a suggestion."""
    try:
        yield
    except KeyboardInterrupt:
        raise CommandInterrupted(message, advice()) from None
