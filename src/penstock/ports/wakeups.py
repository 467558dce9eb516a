"""Wakeups: "look again", with no content. They may be lost or doubled: `wakeups-are-hints`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from typing import Protocol

Topic = str
"""What may have changed: `queue:<id>` for a line with new work, `run:<id>` for a history that grew."""


def queue_topic(queue_id: int) -> Topic:
    return f"queue:{queue_id}"


def scope_topic(scope_id: int) -> Topic:
    """A lease that the scope counts has ended, or its limits have changed."""
    return f"scope:{scope_id}"


def run_topic(run_id: str) -> Topic:
    return f"run:{run_id}"


def end_topic(namespace: str, workflow_id: str) -> Topic:
    """A run of a workflow id has ended. Ids may be long and hold any character: a digest stands for them."""
    return f"end:{blake2b(f'{namespace}/{workflow_id}'.encode(), digest_size=12).hexdigest()}"


class Wakeups(Protocol):
    def notify(self, topics: Iterable[Topic], announced: Collection[Topic] = ()) -> None:
        """Tell everybody on this node. Called after the commit that gives a reason to look.

        Whoever asks to be told beforehand does not hear bells again that were foretold.
        """
        ...

    def notify_before_commit(self, topics: Iterable[Topic]) -> Collection[Topic]:
        """Tell those on this node who ask to be told beforehand; says which of the bells somebody was told of.

        Called before the commit, by a store in which their operations come behind what gives a reason to look.
        """
        ...

    def listen(
        self, topic: Topic, callback: Callable[[], None], *, before_commit: bool = False
    ) -> Callable[[], None]:
        """Call back on each ring until the returned function is called.

        `before_commit`: before the commit, if the store foretells it. That is for those who look by `transact` alone:
        what they hand in is committed with the reason to look, or behind it, and is taken back with it.
        """
        ...
