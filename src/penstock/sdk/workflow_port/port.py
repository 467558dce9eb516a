"""The port between workflow code and the engine that runs it.

Theory of operation
-------------------
The functions of `penstock.workflow` check what their caller gives them, resolve names and types, and pass the rest to
the port of the run whose code is executing. They know no engine. An engine implements `WorkflowPort`:

- `penstock.sdk.replay.port` issues commands to our server and matches them with its history;
- `penstock.engines.temporal.port` calls the SDK of Temporal.

The port of a run is an attribute of its event loop, because the running loop is what identifies workflow code: it
costs one attribute lookup per call, on every engine, and needs no registry.

What a port receives is checked and plain: resolved call targets, arguments as Python values, options that
`check_options` accepted. What it cannot do on its engine it must refuse with `NotOnThisEngineError`; an option that is
accepted has its effect.

Rejected: a switch on the engine in every public function (each would have to be changed for a third engine), and a
context variable (asyncio copies contexts, so that code outside of the run would see it).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, NoReturn, Protocol

from penstock.dispatch import DispatchConfig
from penstock.sdk.call_targets import CallTarget
from penstock.sdk.converters import DataConverter
from penstock.sdk.workflow_port.continue_as_new import NextRun
from penstock.sdk.workflow_port.info import Info, UpdateInfo
from penstock.sdk.workflow_port.streams import StreamMessage
from penstock.sdk.workflows.definitions import Handler

Options = Mapping[str, Any]
"""Options of a call, as its TypedDict describes them."""


class NotInWorkflowError(RuntimeError):
    """A function of `penstock.workflow` was called outside of workflow code."""


class WorkflowPort(Protocol):
    """What one run asks of its engine."""

    @property
    def info(self) -> Info: ...

    @property
    def instance(self) -> Any: ...

    @property
    def now(self) -> datetime: ...

    @property
    def is_replaying(self) -> bool: ...

    @property
    def is_silent(self) -> bool:
        """Whether log output of the code is suppressed, because it was logged before."""

    @property
    def random(self) -> Random: ...

    def uuid4(self) -> uuid.UUID: ...

    @property
    def converter(self) -> DataConverter: ...

    @property
    def cancellation_reason(self) -> str | None: ...

    current_details: str
    """What the code says it does now."""

    def check_writable(self, what: str) -> None:
        """Raise `ReadOnlyError` in a query or a validator."""

    def dispatch(self) -> DispatchConfig | None:
        """The current dispatch configuration of the worker; None in a replay."""

    def memo(self) -> Mapping[str, Any]: ...

    def upsert_memo(self, entries: Mapping[str, Any]) -> None: ...

    def upsert_search_attributes(self, values: Mapping[str, Any]) -> None: ...

    def patched(self, change_id: str, *, is_deprecated: bool) -> bool: ...

    def continue_as_new(self, successor: NextRun) -> NoReturn: ...

    def start_activity(
        self,
        called: CallTarget,
        arguments: Sequence[Any],
        options: Options,
        routing_key: str | None,
        config: DispatchConfig | None,
    ) -> Any:
        """Start an activity and return its `ActivityHandle`."""

    def start_local_activity(
        self, called: CallTarget, arguments: Sequence[Any], options: Options, result_type: Any
    ) -> asyncio.Future[Any]: ...

    async def start_child(
        self, called: CallTarget, arguments: Sequence[Any], child_id: str, options: Options
    ) -> Any:
        """Start a child workflow and return its `ChildWorkflowHandle`."""

    async def signal_workflow(
        self,
        workflow_id: str,
        run_id: str | None,
        called: CallTarget,
        arguments: Sequence[Any],
        *,
        child: Any = None,
    ) -> None:
        """Send a signal. With `child`, a handle of this run, only to that child."""

    async def cancel_workflow(self, workflow_id: str, run_id: str | None, reason: str | None) -> None: ...

    async def receive(self, stream: str, most: int) -> list[StreamMessage]:
        """Wait for messages of a stream of this workflow, and return up to `most` of them."""

    async def sleep(self, seconds: float, summary: str | None) -> None: ...

    async def wait_condition(
        self, fn: Callable[[], bool], seconds: float | None, summary: str | None
    ) -> None: ...

    def as_completed(
        self, fs: Iterable[Awaitable[Any]], timeout: float | None
    ) -> Iterator[Awaitable[Any]]: ...

    @property
    def are_handlers_finished(self) -> bool: ...

    def current_update(self) -> UpdateInfo | None: ...

    def set_handler(self, kind: str, name: str | None, handler: Handler | None) -> None: ...

    def get_handler(self, kind: str, name: str | None) -> Callable[..., Any] | None:
        """Return the handler of a name, as code calls it; None if there is none."""


def current() -> WorkflowPort:
    """Return the port of the run whose code is executing. Raises `NotInWorkflowError` elsewhere."""
    found = maybe_current()
    if found is None:
        raise NotInWorkflowError(
            "This works in workflow code only: inside the run method or a handler of a @workflow.defn class."
        )
    return found


def maybe_current() -> WorkflowPort | None:
    found: WorkflowPort | None = getattr(asyncio._get_running_loop(), "penstock_port", None)
    return found
