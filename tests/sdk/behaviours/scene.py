"""Behaviours of workflows: a sentence, workflows, and what a client does and observes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.sdk.clients.client import Client
from penstock.sdk.clients.handles import WorkflowHandle
from penstock.sdk.failures import ServerRefused, WorkflowFailureError
from penstock.sdk.workflows.definitions import DEFINITION

Script = Callable[["Scene"], Awaitable[None]]
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Behaviour:
    """One behaviour of workflows, and how it is observed."""

    sentence: str
    script: Script


@dataclass
class Scene:
    """What the script of a behaviour uses."""

    client: Client
    queue: str
    folder: Path
    """Where code and script leave notes for each other."""
    is_killed: bool
    """Whether workers may die at any time: an activity may run more than once and may not be notified of its end."""
    handles: list[WorkflowHandle[Any]] = field(default_factory=list)
    """All workflows of this behaviour. Their histories are replayed."""

    def new_id(self) -> str:
        return f"w{next(_numbers)}"

    def note(self) -> str:
        """The path of a new note."""
        return str(self.folder / f"note-{next(_numbers)}")

    async def start(self, workflow: Any, *args: Any, **options: Any) -> WorkflowHandle[Any]:
        chosen: dict[str, Any] = {"id": self.new_id(), "task_queue": self.queue} | options
        handle = await self.client.start_workflow(workflow, args=args, **chosen)
        self.handles.append(handle)
        return handle

    async def run(self, workflow: Any, *args: Any, **options: Any) -> Any:
        return await (await self.start(workflow, *args, **options)).result()

    async def failure_of(self, handle: WorkflowHandle[Any]) -> Any:
        """The failure of a workflow."""
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        return caught.value.cause

    async def failure(self, workflow: Any, *args: Any, **options: Any) -> Any:
        return await self.failure_of(await self.start(workflow, *args, **options))

    def find(self, workflow_id: str) -> WorkflowHandle[Any]:
        """A workflow that was started by another one."""
        handle = self.client.get_workflow_handle(workflow_id)
        self.handles.append(handle)
        return handle

    async def patiently(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat a request while no worker is running, or if it died during the request."""
        while True:
            try:
                return await call()
            except ServerRefused as refused:
                if refused.reason not in _NOBODY_THERE:
                    raise
                await asyncio.sleep(0.05)

    async def ask(self, handle: WorkflowHandle[Any], query: Any, *args: Any) -> Any:
        return await self.patiently(lambda: handle.query(query, args=args))

    async def update(self, handle: WorkflowHandle[Any], update: Any, *args: Any) -> Any:
        """Send an update under one id, however often it is repeated."""
        update_id = f"u{next(_numbers)}"
        return await self.patiently(lambda: handle.execute_update(update, args=args, id=update_id))

    async def until(self, handle: WorkflowHandle[Any], query: Any, value: Any) -> None:
        """Wait until a query returns this value."""
        while await self.ask(handle, query) != value:
            await asyncio.sleep(0.03)

    async def until_written(self, note: str) -> str:
        while not (text := read(note)):
            await asyncio.sleep(0.03)
        return text

    async def event_types(self, handle: WorkflowHandle[Any]) -> list[str]:
        return [event["event_type"] for event in (await handle.fetch_history()).events]

    async def until_recorded(self, handle: WorkflowHandle[Any], event_type: str) -> None:
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event["event_type"] == event_type:
                return


_NOBODY_THERE = {
    "query_worker_unavailable",
    "query_worker_timeout",
    "query_workflow_state_unavailable",
    "update_validator_worker_unavailable",
    "update_validation_task_not_claimed",
    "update_validation_execution_timeout",
    "update_validation_worker_failed",
}


def write(note: str, text: str) -> None:
    """Write atomically: a worker may die in between."""
    path = Path(note)
    half = path.with_suffix(".half")
    half.write_text(text)
    half.replace(path)


def read(note: str) -> str:
    path = Path(note)
    return path.read_text() if path.exists() else ""


BEHAVIOURS: list[Behaviour] = []


def behaviour(sentence: str) -> Callable[[Script], Script]:
    def decorate(script: Script) -> Script:
        BEHAVIOURS.append(Behaviour(sentence, script))
        return script

    return decorate


def workflows_of(module: ModuleType) -> list[type]:
    found = [each for each in vars(module).values() if isinstance(each, type) and DEFINITION in vars(each)]
    return [each for each in found if each.__module__ == module.__name__]


@contextmanager
def refused(kind: type[BaseException], match: str | None = None) -> Iterator[Any]:
    with pytest.raises(kind, match=match) as caught:
        yield caught
