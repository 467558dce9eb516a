"""A scenario: a small workflow, and what a client does with it. Its outcome must be the same on every engine."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock import Client, activity, failures
from penstock.client import WorkflowHandle
from tests.support.patience import PATIENCE_S

Drive = Callable[["World"], Awaitable[Any]]
SCENARIOS: dict[str, Scenario] = {}


@dataclass(frozen=True)
class Scenario:
    """What to start, and what to do with it."""

    name: str
    workflow: type
    args: Sequence[Any]
    drive: Drive
    expected: Any
    start: dict[str, Any] = field(default_factory=dict)


class Journal:
    """What the activities of one engine did, by the id of the workflow at the root."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self.clocks: dict[str, Callable[[float], Awaitable[None]]] = {}
        """How time passes on an engine whose clock is not the real one."""
        self._seen: set[str] = set()
        self._began: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def note(self, *what: Any) -> None:
        root = root_of(activity.info().workflow_id or "")
        self.calls[root].append((*what, activity.info().attempt))
        self._began[root].set()

    def is_first(self, who: str) -> bool:
        """Whether this is the first time that this name is given."""
        known = who in self._seen
        self._seen.add(who)
        return not known

    async def pause(self, seconds: float) -> None:
        """Sleep in an activity, by the clock of its engine."""
        engine = (activity.info().workflow_id or "").partition("-")[0]
        await self.clocks.get(engine, asyncio.sleep)(seconds)

    async def began(self, root: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._began[root].wait()


JOURNAL = Journal()


def root_of(workflow_id: str) -> str:
    return workflow_id.partition("/")[0]


@dataclass
class World:
    """One run of a scenario on one engine."""

    engine: str
    client: Client
    queue: str
    scenario: Scenario

    @property
    def id(self) -> str:
        return f"{self.engine}-{self.scenario.name}"

    @property
    def handle(self) -> WorkflowHandle[Any]:
        return self.client.get_workflow_handle(self.id)

    async def began(self) -> None:
        """Wait until an activity of this workflow runs."""
        await JOURNAL.began(self.id)

    async def until(self, query: str, expected: Any) -> None:
        """Wait until a query has this answer."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._answer(query) != expected:
                await JOURNAL.clocks.get(self.engine, asyncio.sleep)(0.02)

    async def _answer(self, query: str) -> Any:
        """Query the workflow. On a busy machine its worker may not answer in time."""
        with contextlib.suppress(failures.QueryFailed):
            return await self.handle.query(query)
        return None


async def result(world: World) -> Any:
    return await world.handle.result(timeout=PATIENCE_S)


def scenario(*args: Any, expected: Any, drive: Drive = result, **start: Any) -> Callable[[type], type]:
    """Register a workflow class as a scenario.

    Args:
        args: the arguments of the run.
        expected: its outcome on every engine.
        drive: what the client does; it returns the outcome.
        start: options of the start.
    """

    def register(cls: type) -> type:
        SCENARIOS[cls.__name__] = Scenario(cls.__name__, cls, args, drive, expected, start)
        return cls

    return register


def told(error: BaseException | None) -> Any:
    """Return an error and its causes as data, without the words that belong to an engine."""
    found: list[Any] = []
    while error is not None:
        found.append(_one(error))
        error = error.__cause__
    return found


def _one(error: BaseException) -> Any:
    name = type(error).__name__
    match error:
        case failures.ApplicationError():
            return (name, error.type, error.message, list(error.details), error.non_retryable)
        case failures.TimeoutError():
            return (name, error.kind)
        case failures.ActivityError():
            return (name, error.activity_type, str(error.retry_state))
        case failures.ChildWorkflowError():
            return (name, error.workflow_type, str(error.retry_state))
        case _:
            return (name,)
