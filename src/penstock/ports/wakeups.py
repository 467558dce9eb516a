"""Wakeups: notifications that something may have changed, without content.

They may be lost or duplicated (`wakeups-are-hints`): a subscriber reads the store, and polls it at an interval as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from typing import Protocol

Topic = str
"""What may have changed: `queue:<id>` has new tasks, `run:<id>` has new events."""
OUTBOX_TOPIC: Topic = "outbox"
"""There are messages to deliver."""
RUN_PLACES_TOPIC: Topic = "run-places"
"""A run that caps count has closed, one waits to start, or a cap has changed."""


def queue_topic(queue_id: int) -> Topic:
    return f"queue:{queue_id}"


def scope_topic(scope_id: int) -> Topic:
    """A lease that the scope counts has ended, or its limits have changed."""
    return f"scope:{scope_id}"


def run_topic(run_id: str) -> Topic:
    return f"run:{run_id}"


def end_topic(namespace: str, workflow_id: str) -> Topic:
    """A run of a workflow id has closed. The id is hashed, because it may be long and contain any character."""
    return f"end:{blake2b(f'{namespace}/{workflow_id}'.encode(), digest_size=12).hexdigest()}"


class Wakeups(Protocol):
    def notify(self, topics: Iterable[Topic], announced: Collection[Topic] = ()) -> None:
        """Call the subscribers on this node, after the commit that changed something.

        `announced`: topics whose before-commit subscribers were called already; they are not called again.
        """
        ...

    def notify_before_commit(self, topics: Iterable[Topic]) -> Collection[Topic]:
        """Call the before-commit subscribers on this node; returns the topics that had any.

        Only for a store that commits operations in order, so that what the subscribers submit is committed with the
        change or after it.
        """
        ...

    def listen(
        self, topic: Topic, callback: Callable[[], None], *, before_commit: bool = False
    ) -> Callable[[], None]:
        """Call `callback` on each notification; returns a function that unsubscribes.

        `before_commit`: call it before the commit where the store supports it. Only for subscribers that read by
        `transact`: their operations are committed with the change or after it, and rolled back with it.
        """
        ...
