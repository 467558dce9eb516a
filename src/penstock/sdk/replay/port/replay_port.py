"""`ReplayPort`: the run in memory, as `penstock.workflow` sees it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, NoReturn, TypeVar

from penstock.dispatch import DispatchConfig
from penstock.sdk.call_targets import CallTarget
from penstock.sdk.converters import DEFAULT as PLAIN
from penstock.sdk.converters import DataConverter, Envelope
from penstock.sdk.dispatch_options import resolve_options
from penstock.sdk.priority import priority_fields
from penstock.sdk.replay.commands import CommandKind, StepFuture
from penstock.sdk.replay.determinism_guard import unprofiled
from penstock.sdk.replay.errors import ReadOnlyError
from penstock.sdk.replay.events import DEPRECATED, PATCHED
from penstock.sdk.replay.port.command_bodies import (
    activity_body,
    child_body,
    memo_and_attributes,
    whole_seconds,
)
from penstock.sdk.replay.runtime import Runtime
from penstock.sdk.workflow_port.continue_as_new import ContinueAsNewError, NextRun
from penstock.sdk.workflow_port.handles import (
    ActivityCancellationType,
    ActivityHandle,
    ChildWorkflowCancellationType,
    ChildWorkflowHandle,
)
from penstock.sdk.workflow_port.info import CURRENT_UPDATE, UpdateInfo
from penstock.sdk.workflow_port.port import Options
from penstock.sdk.workflow_port.streams import StreamMessage
from penstock.sdk.workflows.definitions import Handler

T = TypeVar("T")
GiveUp = Callable[[StepFuture[Any]], bool]


class ActivityStep(StepFuture[T], ActivityHandle[T]):
    """The handle of an activity of our engine."""


class ChildStep(StepFuture[T], ChildWorkflowHandle[T]):
    """The handle of a child workflow of our engine."""


class ReplayPort:
    """The port of a `Runtime`.

    Args:
        runtime: the run.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._encode = runtime.converter.encode_arguments
        self.info = runtime.info
        self.now = runtime.now
        """Advanced by `Runtime.set_now`: code reads it often."""
        runtime.on_time = self._set_now

    @property
    def instance(self) -> Any:
        return self._runtime.instance

    def _set_now(self, now: datetime) -> None:
        self.now = now

    @property
    def is_replaying(self) -> bool:
        return self._runtime.is_replaying

    @property
    def is_silent(self) -> bool:
        return self._runtime.is_silent

    @property
    def random(self) -> Random:
        return self._runtime.random

    def uuid4(self) -> uuid.UUID:
        return self._runtime.uuid4()

    @property
    def converter(self) -> DataConverter:
        return self._runtime.converter

    @property
    def cancellation_reason(self) -> str | None:
        return self._runtime.cancel_reason

    @property
    def current_details(self) -> str:
        return self._runtime.current_details

    @current_details.setter
    def current_details(self, description: str) -> None:
        self._runtime.current_details = description

    def check_writable(self, what: str) -> None:
        self._runtime.check_writable(what)

    def dispatch(self) -> DispatchConfig | None:
        return self._runtime.dispatch()

    # ── memo, attributes, patches, the next run ─────────────────────────────────────────────────────────

    def memo(self) -> Mapping[str, Any]:
        return self._runtime.memo

    def upsert_memo(self, entries: Mapping[str, Any]) -> None:
        self._runtime.issue(CommandKind.MEMO, {"entries": PLAIN.encode(entries, "memo")})
        _merge(self._runtime.memo, entries)

    def upsert_search_attributes(self, values: Mapping[str, Any]) -> None:
        self._runtime.issue(CommandKind.SEARCH_ATTRIBUTES, {"attributes": values})
        _merge(self._runtime.search_attributes, values)

    def patched(self, change_id: str, *, is_deprecated: bool) -> bool:
        return self._runtime.patched(change_id, DEPRECATED if is_deprecated else PATCHED)

    def continue_as_new(self, successor: NextRun) -> NoReturn:
        if self._runtime.is_read_only is not None:
            raise ReadOnlyError(f"{self._runtime.is_read_only} must not end the run.")
        called = successor.called
        body: dict[str, Any] = {
            "arguments": self._encode(successor.arguments, f'workflow "{called.name}"'),
            "queue": successor.task_queue or self.info.task_queue,
            "workflow_type": called.name,
            **whole_seconds(run_timeout_seconds=successor.run_timeout),
            **priority_fields(successor.priority),
            **memo_and_attributes(successor.memo, successor.search_attributes),
        }
        if successor.retry_policy is not None:
            body["retry_policy"] = successor.retry_policy.on_the_wire()
        raise ContinueAsNewError(body)

    # ── activities ──────────────────────────────────────────────────────────────────────────────────────

    def start_activity(
        self,
        called: CallTarget,
        arguments: Sequence[Any],
        options: Options,
        routing_key: str | None,
        config: DispatchConfig | None,
    ) -> ActivityStep[Any]:
        encoded = self._encode(arguments, f'activity "{called.name}"')
        return self._scheduled(called, encoded, options, routing_key, config)

    @unprofiled
    def _scheduled(
        self,
        called: CallTarget,
        arguments: Envelope,
        options: Options,
        routing_key: str | None,
        config: DispatchConfig | None,
    ) -> ActivityStep[Any]:
        """Issue the command for an activity whose arguments are encoded. No code of the user is called."""
        runtime = self._runtime
        resolved = resolve_options(called.name, routing_key, options, called.defaults, config)
        body = activity_body(called.name, arguments, options, resolved)
        how = ActivityCancellationType(options.get("cancellation_type", ActivityCancellationType.TRY_CANCEL))
        handle: ActivityStep[Any] = runtime.step(
            CommandKind.ACTIVITY,
            body,
            name=called.name,
            facts={"activity_type": called.name},
            give_up=_cancelling_activity(runtime, how),
            future=ActivityStep,
        )
        handle.cancelled_error = runtime.activity_cancelled
        handle.command.trace = resolved.trace
        given = options.get("result_type")
        handle.result_type = called.result_type if given is None else given
        return handle

    def start_local_activity(
        self, called: CallTarget, arguments: Sequence[Any], options: Options, result_type: Any
    ) -> StepFuture[Any]:
        envelope = self._encode(arguments, f'activity "{called.name}"')
        return self._runtime.start_local_activity(called.name, envelope, dict(options), result_type)

    # ── other workflows ─────────────────────────────────────────────────────────────────────────────────

    async def start_child(
        self, called: CallTarget, arguments: Sequence[Any], child_id: str, options: Options
    ) -> ChildStep[Any]:
        runtime = self._runtime
        encoded = self._encode(arguments, f'workflow "{called.name}"')
        how = ChildWorkflowCancellationType(
            options.get("cancellation_type", ChildWorkflowCancellationType.TRY_CANCEL)
        )
        handle: ChildStep[Any] = runtime.step(
            CommandKind.CHILD,
            child_body(called.name, child_id, encoded, options),
            name=called.name,
            facts={"child_workflow_type": called.name},
            give_up=_cancelling_child(runtime, child_id, how),
            future=ChildStep,
        )
        handle.cancelled_error = runtime.child_cancelled
        handle.id = child_id
        given = options.get("result_type")
        handle.result_type = called.result_type if given is None else given
        return handle

    async def signal_workflow(
        self,
        workflow_id: str,
        run_id: str | None,
        called: CallTarget,
        arguments: Sequence[Any],
        *,
        child: Any = None,
    ) -> None:
        body = {
            **_address(workflow_id, run_id),
            **({} if child is None else {"child_workflow_only": True}),
            "signal_name": called.name,
            "arguments": self._encode(arguments, f'signal "{called.name}"'),
        }
        facts = {"workflow_id": workflow_id, "signal_name": called.name}
        await self._runtime.step(CommandKind.SIGNAL_EXTERNAL, body, name=called.name, facts=facts)

    async def cancel_workflow(self, workflow_id: str, run_id: str | None, reason: str | None) -> None:
        body = _address(workflow_id, run_id) | ({} if reason is None else {"reason": reason})
        facts = {"workflow_id": workflow_id}
        await self._runtime.step(CommandKind.CANCEL_EXTERNAL, body, name=workflow_id, facts=facts)

    # ── waiting, handlers ───────────────────────────────────────────────────────────────────────────────

    async def receive(self, stream: str, most: int) -> list[StreamMessage]:
        self._runtime.check_writable("message streams")
        inbox = self._runtime.inboxes.of(stream)
        while not inbox.messages:
            inbox.readers += 1
            try:
                await self._runtime.when(lambda: bool(inbox.messages))
            finally:
                inbox.readers -= 1
        return inbox.take(most)

    async def sleep(self, seconds: float, summary: str | None) -> None:
        await asyncio.sleep(seconds)

    async def wait_condition(
        self, fn: Callable[[], bool], seconds: float | None, summary: str | None
    ) -> None:
        if fn():
            return
        waiting = self._runtime.when(fn)
        if seconds is None:
            await waiting
            return
        async with asyncio.timeout(seconds):
            await waiting

    def as_completed(self, fs: Iterable[Awaitable[Any]], timeout: float | None) -> Iterator[Awaitable[Any]]:
        return asyncio.as_completed([asyncio.ensure_future(each) for each in fs], timeout=timeout)

    @property
    def are_handlers_finished(self) -> bool:
        return bool(self._runtime.handlers.are_finished)

    def current_update(self) -> UpdateInfo | None:
        return CURRENT_UPDATE.get()

    def set_handler(self, kind: str, name: str | None, handler: Handler | None) -> None:
        self._runtime.handlers.set_handler(kind, name, handler)

    def get_handler(self, kind: str, name: str | None) -> Callable[..., Any] | None:
        found: Callable[..., Any] | None = self._runtime.handlers.get_handler(kind, name)
        return found


def _merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    into.update(changes)
    for name in [name for name, value in into.items() if value is None]:
        del into[name]


def _address(workflow_id: str, run_id: str | None) -> dict[str, Any]:
    return {"workflow_id": workflow_id} | ({} if run_id is None else {"run_id": run_id})


def _abandon(future: StepFuture[Any]) -> bool:
    future.command.given_up = True
    return True


def _cancelling_activity(runtime: Runtime, how: ActivityCancellationType) -> GiveUp | None:
    """Return what cancelling an activity does; None for the default, to cancel and continue."""
    if how is ActivityCancellationType.ABANDON:
        return _abandon
    return runtime.request_cancel if how is ActivityCancellationType.WAIT_CANCELLATION_COMPLETED else None


def _cancelling_child(runtime: Runtime, child_id: str, how: ChildWorkflowCancellationType) -> GiveUp | None:
    """Return what cancelling a child does; None for the default, to cancel and continue."""
    if how is ChildWorkflowCancellationType.ABANDON:
        return _abandon
    if how is ChildWorkflowCancellationType.TRY_CANCEL:
        return None

    goes_on_when_requested = how is ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED

    def request_and_wait(future: StepFuture[Any]) -> bool:
        if runtime.is_closing or not future.command.is_taken:
            return runtime.give_up(future)
        if not future.command.given_up:
            future.command.given_up = True
            body = {"workflow_id": child_id, "child_workflow_only": True}
            request = runtime.step(CommandKind.CANCEL_EXTERNAL, body, name=child_id)
            request.add_done_callback(partial(_cancel_requested, future if goes_on_when_requested else None))
        return False

    return request_and_wait


def _cancel_requested(child: StepFuture[Any] | None, request: StepFuture[Any]) -> None:
    """Handle the response to a cancel request. A refused one has no effect: the outcome of the child follows."""
    if request.cancelled() or request.exception() is not None or child is None:
        return
    child.fail_as_cancelled()
