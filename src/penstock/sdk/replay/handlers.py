"""Dispatches signals, updates and queries of a run to their handlers."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.schema.nearest import nearest
from penstock.sdk.failures import ApplicationError, ConversionError, FailureError, failure_fields
from penstock.sdk.replay import events as named
from penstock.sdk.replay.commands import CommandKind
from penstock.sdk.replay.events import HistoryEvent
from penstock.sdk.replay.interceptors import (
    ExecuteWorkflowInput,
    HandlerInput,
    WorkflowInboundInterceptor,
    chain,
)
from penstock.sdk.replay.runtime import Runtime
from penstock.sdk.workflows.definitions import Handler, WorkflowDefinition

STACK_TRACE = "__stack_trace"
"""The query that every workflow answers with the stacks of its tasks."""
RESERVED = "__durable_workflow"
"""Prefix of signals that are internal to the server."""


@dataclass(frozen=True, slots=True)
class UpdateInfo:
    """The update whose handler is running."""

    id: str
    name: str


class Handlers:
    """The handlers of one run, and those that are running."""

    def __init__(
        self, runtime: Runtime, definition: WorkflowDefinition, interceptors: Sequence[Any] = ()
    ) -> None:
        self._runtime = runtime
        self._inbound = chain(interceptors, _WorkflowInvoker(runtime))
        self._definition = definition
        self.signals: dict[str | None, Handler] = dict(definition.signals)
        self.queries: dict[str | None, Handler] = dict(definition.queries)
        self.updates: dict[str | None, Handler] = dict(definition.updates)
        self._buffered: dict[str, list[HistoryEvent]] = {"signal": [], "update": []}
        """Messages without a handler so far."""
        self._running: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None
        runtime.handlers = self

    @property
    def are_finished(self) -> bool:
        return not any(not task.done() for task in self._running)

    async def execute(self, run: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        return await self._inbound.execute_workflow(ExecuteWorkflowInput(run, arguments))

    # ── signals and updates ─────────────────────────────────────────────────────────────────────────────

    def dispatch_message(self, event: HistoryEvent) -> None:
        if event.type == named.SIGNAL:
            self._signal(event)
        else:
            self._update(event)

    def set_handler(self, kind: str, name: str | None, handler: Handler | None) -> None:
        """Replace a handler at run time. Buffered messages are delivered to it."""
        table = {"signal": self.signals, "query": self.queries, "update": self.updates}[kind]
        if handler is None:
            table.pop(name, None)
            return
        table[name] = handler
        waiting, self._buffered[kind] = self._buffered.get(kind, []), []
        for event in waiting:
            self.dispatch_message(event)

    def reject_unhandled_updates(self) -> None:
        """Reject updates that still have no handler after the code has processed all new events."""
        waiting, self._buffered["update"] = self._buffered["update"], []
        for event in waiting:
            name = str(event.payload.get("update_name"))
            missing = _unknown("update", name, self.updates)
            error = ApplicationError(missing, type="UpdateNotFound", non_retryable=True)
            self._fail_update(str(event.payload.get("update_id")), name, error)

    def _signal(self, event: HistoryEvent) -> None:
        name = str(event.payload.get("signal_name"))
        if name.startswith(RESERVED):
            return
        handler = _find_handler(self.signals, name)
        if handler is None:
            self._buffered["signal"].append(event)
            return
        try:
            arguments = self._arguments(handler, name, event.payload.get("arguments"))
        except (FailureError, ConversionError) as error:
            self._drop(name, error)
            return
        handling = self._inbound.handle_signal(HandlerInput(name, arguments, handler))
        self._run_handler(handling, f"signal {name}", self._end_signal)

    def _drop(self, name: str, error: Exception) -> None:
        """Drop a signal that its handler cannot accept, so that it does not block the run. Replays drop it as well."""
        if not self._runtime.is_silent:
            info = self._runtime.info
            self._runtime.log.error(
                "Signal %r of workflow %s (run %s) was dropped: %s",
                name,
                info.workflow_id,
                info.run_id,
                error,
            )

    def _update(self, event: HistoryEvent) -> None:
        name, update_id = str(event.payload.get("update_name")), str(event.payload.get("update_id"))
        handler = _find_handler(self.updates, name)
        if handler is None:
            self._buffered["update"].append(event)
            return
        try:
            arguments = self._arguments(handler, name, event.payload.get("arguments"))
        except (FailureError, ConversionError) as error:
            self._fail_update(update_id, name, error)
            return

        def end(task: asyncio.Task[Any]) -> None:
            self._end_update(task, update_id, name)

        done = self._inbound.handle_update(HandlerInput(name, arguments, handler))
        task = self._run_handler(done, f"update {name}", end)
        task.penstock_update = UpdateInfo(update_id, name)  # type: ignore[attr-defined]

    def _run_handler(
        self, work: Any, name: str, end: Callable[[asyncio.Task[Any]], None]
    ) -> asyncio.Task[Any]:
        task = self._runtime.loop.create_task(work, name=name)
        self._running.add(task)

        def ended(done: asyncio.Task[Any]) -> None:
            self._running.discard(done)
            if not self._runtime.is_closing:
                end(done)

        task.add_done_callback(ended)
        return task

    def _end_signal(self, task: asyncio.Task[Any]) -> None:
        """Treat an error in a signal handler as an error of the run."""
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()

    def _end_update(self, task: asyncio.Task[Any], update_id: str, name: str) -> None:
        if task.cancelled():
            self._fail_update(update_id, name, ApplicationError("The update was cancelled", type="Cancelled"))
            return
        error = task.exception()
        if error is None:
            try:
                result = self._runtime.converter.encode(task.result(), f'result of update "{name}"')
            except ConversionError as refusal:
                self._fail_update(update_id, name, refusal)
                return
            body = {"update_id": update_id, "result": result}
            self._runtime.issue(CommandKind.COMPLETE_UPDATE, body, name=name, facts={"update_id": update_id})
        elif (failure := self._definition.failure_in(error)) is not None:
            self._fail_update(update_id, name, failure)
        else:
            self._error = self._error or error

    def _fail_update(self, update_id: str, name: str, error: BaseException) -> None:
        body = {"update_id": update_id, **failure_fields(error, self._runtime.converter)}
        self._runtime.issue(CommandKind.FAIL_UPDATE, body, name=name, facts={"update_id": update_id})

    def take_error(self) -> BaseException | None:
        """Return and clear the first error that a handler raised."""
        error, self._error = self._error, None
        return error

    # ── queries and validators ──────────────────────────────────────────────────────────────────────────

    def query(self, name: str, arguments: Any) -> dict[str, str]:
        converter = self._runtime.converter
        if name == STACK_TRACE:
            return converter.encode(self.stacks(), "stack trace")
        handler = _find_handler(self.queries, name)
        if handler is None:
            raise LookupError(_unknown("query", name, self.queries))
        values = self._arguments(handler, name, arguments)
        result = self._inbound.handle_query(HandlerInput(name, values, handler))
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise ApplicationError(
                f'The handler of query "{name}" is async; queries answer at once', type="Query"
            )
        return converter.encode(result, f'result of query "{name}"')

    def validate(self, name: str, arguments: Any) -> None:
        handler = _find_handler(self.updates, name)
        if handler is None:
            raise LookupError(_unknown("update", name, self.updates))
        values = self._arguments(handler, name, arguments)
        self._inbound.validate_update(HandlerInput(name, values, handler))

    def stacks(self) -> str:
        """Return the stacks of all tasks of the code."""
        stacks = []
        for task in self._runtime.loop.tasks.values():
            frames = task.get_stack(limit=20)
            lines = [line for frame in frames for line in traceback.format_stack(frame, limit=1)]
            stacks.append(f"{task.get_name()}\n{''.join(lines)}")
        return "\n".join(stacks)

    def _arguments(self, handler: Handler, name: str, blob: Any) -> list[Any]:
        converter, what = self._runtime.converter, f'{handler.kind} "{name}"'
        if handler.name is None:
            return [name, *converter.decode_arguments(blob, handler.parameters.types[1:], what=what)]
        values = converter.decode_arguments(blob, handler.parameters.types, what=what)
        if not handler.parameters.accepts(len(values)):
            raise ApplicationError(
                f'{handler.kind} "{name}" takes {handler.parameters.in_words()} arguments, not {len(values)}',
                type="WrongArguments",
                non_retryable=True,
            )
        return values


class _WorkflowInvoker(WorkflowInboundInterceptor):
    """The innermost link: calls the workflow code itself."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(self)
        self._runtime = runtime

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        return await input.run_fn(self._runtime.instance, *input.args)

    async def handle_signal(self, input: HandlerInput) -> None:  # noqa: A002
        await self._invoke(input)

    async def handle_update(self, input: HandlerInput) -> Any:  # noqa: A002
        return await self._invoke(input)

    def validate_update(self, input: HandlerInput) -> None:  # noqa: A002
        if input.handler.validator is not None:
            input.handler.validator(self._runtime.instance, *input.args)

    def handle_query(self, input: HandlerInput) -> Any:  # noqa: A002
        return input.handler.fn(self._runtime.instance, *input.args)

    async def _invoke(self, input: HandlerInput) -> Any:  # noqa: A002
        result = input.handler.fn(self._runtime.instance, *input.args)
        return await result if inspect.isawaitable(result) else result


def _find_handler(table: Mapping[str | None, Handler], name: str) -> Handler | None:
    return table.get(name) or table.get(None)


def _unknown(kind: str, name: str, table: Mapping[str | None, Handler]) -> str:
    known = sorted(each for each in table if each is not None)
    near = nearest(name, known)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    return f'This workflow has no {kind} "{name}"; it has {", ".join(known) or "none"}.{hint}'
