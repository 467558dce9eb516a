"""Wakeups: "look again", with no content. They may be lost or doubled: `wakeups-are-hints`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Protocol

Bell = str
"""What may have changed: `queue:<id>` for a line with new work, `run:<id>` for a history that grew."""


def queue_bell(queue_id: int) -> Bell:
    return f"queue:{queue_id}"


def scope_bell(scope_id: int) -> Bell:
    """A lease that the scope counts has ended, or its limits have changed."""
    return f"scope:{scope_id}"


def run_bell(run_id: str) -> Bell:
    return f"run:{run_id}"


def end_bell(namespace: str, workflow_id: str) -> Bell:
    """A run of a workflow id has ended. Ids may be long and hold any character: a digest stands for them."""
    return f"end:{blake2b(f'{namespace}/{workflow_id}'.encode(), digest_size=12).hexdigest()}"


class Wakeups(Protocol):
    def ring(self, bells: Iterable[Bell]) -> None:
        """Tell everybody on this node. Called after the commit that gives a reason to look."""
        ...

    def listen(self, bell: Bell, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on each ring until the returned function is called."""
        ...
