"""Dispatches signals, updates and queries of a run to their handlers."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any
from warnings import warn

from penstock.core.history.events import MESSAGE_STREAM_SIGNAL
from penstock.schema.nearest import nearest
from penstock.sdk.failures import (
    ApplicationError,
    ConversionError,
    FailureError,
    UnreadablePayload,
    failure_fields,
)
from penstock.sdk.replay import events as named
from penstock.sdk.replay.commands import CommandKind
from penstock.sdk.replay.events import HistoryEvent
from penstock.sdk.replay.interceptors import (
    CodeInvoker,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    chain,
)
from penstock.sdk.replay.runtime import Runtime
from penstock.sdk.workflow_port.info import CURRENT_DETAILS, CURRENT_UPDATE, UpdateInfo
from penstock.sdk.workflow_port.port import WorkflowPort
from penstock.sdk.workflows.definitions import (
    Handler,
    UnfinishedSignalHandlersWarning,
    UnfinishedUpdateHandlersWarning,
    WorkflowDefinition,
)
from penstock.sdk.workflows.dynamic_calls import handler_arguments

STACK_TRACE = "__stack_trace"
"""The query that every workflow answers with the stacks of its tasks."""
STACK_FRAMES_MAX = 30
RESERVED = "__durable_workflow"
"""Prefix of signals that are internal to the server."""


_UNFINISHED: Mapping[str, type[RuntimeWarning]] = {
    "signal": UnfinishedSignalHandlersWarning,
    "update": UnfinishedUpdateHandlersWarning,
}


@dataclass(frozen=True, slots=True)
class _RunningHandler:
    """A signal or update whose handler runs."""

    handler: Handler
    name: str
    update_id: str | None = None

    @property
    def label(self) -> str:
        return self.name if self.update_id is None else f"{self.name} ({self.update_id})"


class Handlers:
    """The handlers of one run, and those that are running."""

    def __init__(
        self,
        runtime: Runtime,
        definition: WorkflowDefinition,
        port: WorkflowPort,
        interceptors: Sequence[Any] = (),
    ) -> None:
        self._runtime = runtime
        invoker = CodeInvoker(lambda: runtime.instance)
        self._inbound, self.port = chain(interceptors, invoker, port)
        """The first link towards the code, and the port that the code uses."""
        self._definition = definition
        self.signals: dict[str | None, Handler] = dict(definition.signals)
        self.queries: dict[str | None, Handler] = dict(definition.queries)
        self.updates: dict[str | None, Handler] = dict(definition.updates)
        self._buffered: dict[str, list[HistoryEvent]] = {"signal": [], "update": []}
        """Messages without a handler so far."""
        self._running: dict[asyncio.Task[Any], _RunningHandler] = {}
        self._error: BaseException | None = None
        runtime.handlers = self

    @property
    def are_finished(self) -> bool:
        return not any(not task.done() for task in self._running)

    async def execute(
        self, run: Callable[..., Any], arguments: Sequence[Any], headers: Mapping[str, Any]
    ) -> Any:
        return await self._inbound.execute_workflow(ExecuteWorkflowInput(run, arguments, headers))

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

    def get_handler(self, kind: str, name: str | None) -> Callable[..., Any] | None:
        """Return the handler of a name as code calls it: a bound method, or the function that was set."""
        table = {"signal": self.signals, "query": self.queries, "update": self.updates}[kind]
        handler = table.get(name)
        return None if handler is None else handler.called_on(self._runtime.instance)

    def warn_of_unfinished(self) -> None:
        """Warn of handlers that run while the run closes: what they do afterwards is lost."""
        for kind, category in _UNFINISHED.items():
            names = [
                each.label
                for task, each in self._running.items()
                if each.handler.kind == kind and each.handler.warns_if_unfinished and not task.done()
            ]
            if names:
                info = self._runtime.info
                warn(
                    f"Workflow {info.workflow_id} (run {info.run_id}) closes while {kind} handlers run:"
                    f" {', '.join(names)}. Wait for workflow.all_handlers_finished() before the run method"
                    f" returns, or mark them with unfinished_policy=HandlerUnfinishedPolicy.ABANDON",
                    category,
                    stacklevel=2,
                )

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
        if name == MESSAGE_STREAM_SIGNAL:
            self._runtime.inboxes.accept(event.payload.get("arguments"))
        if name.startswith(RESERVED):
            return
        handler = _find_handler(self.signals, name)
        if handler is None:
            self._buffered["signal"].append(event)
            return
        try:
            arguments, headers = self._arguments(handler, name, event.payload.get("arguments"))
        except UnreadablePayload:
            raise  # the task is retried: a worker with another converter may read it
        except (FailureError, ConversionError) as error:
            self._drop(name, error)
            return
        handling = self._inbound.handle_signal(HandleSignalInput(name, arguments, handler, headers))
        self._run_handler(handling, _RunningHandler(handler, name), self._end_signal)

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
            arguments, headers = self._arguments(handler, name, event.payload.get("arguments"))
        except UnreadablePayload:
            raise
        except (FailureError, ConversionError) as error:
            self._fail_update(update_id, name, error)
            return

        def end(task: asyncio.Task[Any]) -> None:
            self._end_update(task, update_id, name)

        done = self._inbound.handle_update_handler(
            HandleUpdateInput(name, arguments, handler, headers, update_id)
        )
        self._run_handler(done, _RunningHandler(handler, name, update_id), end)

    def _run_handler(
        self, work: Any, handler: _RunningHandler, end: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        context = None
        if handler.update_id is not None:
            context = self._runtime.loop.new_context()
            context.run(CURRENT_UPDATE.set, UpdateInfo(handler.update_id, handler.name))
        name = f"{handler.handler.kind} {handler.name}"
        task = self._runtime.loop.create_task(work, name=name, context=context)
        self._running[task] = handler

        def ended(done: asyncio.Task[Any]) -> None:
            self._running.pop(done, None)
            if not self._runtime.is_closing:
                end(done)

        task.add_done_callback(ended)

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
        if name == CURRENT_DETAILS:
            return converter.encode(self._runtime.current_details, "current details")
        handler = _find_handler(self.queries, name)
        if handler is None:
            raise LookupError(_unknown("query", name, self.queries))
        values, headers = self._arguments(handler, name, arguments)
        result = self._inbound.handle_query(HandleQueryInput(name, values, handler, headers))
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise ApplicationError(
                f'The handler of query "{name}" is async; queries answer at once', type="Query"
            )
        return converter.encode(result, f'result of query "{name}"')

    def validate(self, name: str, arguments: Any) -> None:
        """Run the validator of an update, if it has one. An update that nothing handles fails once it is recorded."""
        handler = _find_handler(self.updates, name)
        if handler is None or handler.validator is None:
            return
        values, headers = self._arguments(handler, name, arguments)
        self._inbound.handle_update_validator(HandleUpdateInput(name, values, handler, headers))

    def stacks(self) -> str:
        """Return the stacks of all tasks of the code, without the frames of this package around them."""
        stacks = []
        for task in self._runtime.loop.tasks.values():
            frames = [
                each for each in _awaiting_frames(task) if each.f_globals.get("__package__") != __package__
            ]
            lines = [line for frame in frames for line in traceback.format_stack(frame, limit=1)]
            stacks.append(f"{task.get_name()}\n{''.join(lines)}")
        return "\n".join(stacks)

    def _arguments(self, handler: Handler, name: str, blob: Any) -> tuple[list[Any], dict[str, Any]]:
        converter, what = self._runtime.converter, f'{handler.kind} "{name}"'
        if handler.name is None:
            received, headers = converter.decode_raw_call(blob, what=what)
            return handler_arguments(handler, name, received), headers
        values, headers = converter.decode_call(blob, handler.parameters.types, what=what)
        if not handler.parameters.accepts(len(values)):
            raise ApplicationError(
                f'{handler.kind} "{name}" takes {handler.parameters.in_words()} arguments, not {len(values)}',
                type="WrongArguments",
                non_retryable=True,
            )
        return values, headers


def _awaiting_frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Yield the frames of a suspended task: of its coroutine, and of those that this one awaits.

    `Task.get_stack` has the first only, which is a link of interceptors.
    """
    waiting: Any = task.get_coro()
    for _ in range(STACK_FRAMES_MAX):
        if not inspect.iscoroutine(waiting) or waiting.cr_frame is None:
            return
        yield waiting.cr_frame
        waiting = waiting.cr_await


def _find_handler(table: Mapping[str | None, Handler], name: str) -> Handler | None:
    return table.get(name) or table.get(None)


def _unknown(kind: str, name: str, table: Mapping[str | None, Handler]) -> str:
    known = sorted(each for each in table if each is not None)
    near = nearest(name, known)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    return f'This workflow has no {kind} "{name}"; it has {", ".join(known) or "none"}.{hint}'
