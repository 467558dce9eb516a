"""What a program is: its code, and the story that a user plays with it.

Programs run side by side, on workers that have the code of all of them, twice in a row with the same ids. So a story
starts only what has its own id, leaves nothing running, and expects the same both times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock import Client
from penstock.client import WorkflowHistory
from tests.acceptance.cluster import Cluster

SOON = timedelta(milliseconds=20)
LONG = timedelta(minutes=1)


@dataclass(frozen=True)
class Home:
    """Where a story takes place: one namespace of one server."""

    client: Client
    scene: Cluster
    name: str
    """The name of the program, which its ids begin with."""
    queue: str = "programs"

    def how(self, suffix: str = "") -> dict[str, Any]:
        """Id and task queue of a start."""
        return {"id": f"{self.name}{suffix}", "task_queue": self.queue}


@dataclass(frozen=True)
class Program:
    name: str
    play: Callable[[Home], Awaitable[None]]
    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]


def activity_types(history: WorkflowHistory) -> list[str]:
    """The types of the activities that a run scheduled, in order."""
    return [
        each["payload"]["activity_type"]
        for each in history.events
        if each["event_type"] == "ActivityScheduled"
    ]


PROGRAMS: dict[str, Program] = {}


def program(
    *, workflows: Sequence[type] = (), activities: Sequence[Callable[..., Any]] = ()
) -> Callable[[Callable[[Home], Awaitable[None]]], Callable[[Home], Awaitable[None]]]:
    """Add a story to the programs, with the code that workers need for it."""

    def add(play: Callable[[Home], Awaitable[None]]) -> Callable[[Home], Awaitable[None]]:
        name = play.__name__.replace("_", "-")
        assert name not in PROGRAMS, f"two programs are called {name}"
        PROGRAMS[name] = Program(name, play, workflows, activities)
        return play

    return add
