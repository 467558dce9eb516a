"""Workflow classes of Penstock as workflow classes of Temporal.

Theory of operation
-------------------
A worker makes one class for each definition: with temporalio's decorators, one method for the run and one for each
handler, all of which take plain arguments (`*args`, without type hints). Its `__init__` creates the port of the run,
makes it an attribute of the event loop, and creates the instance of the user's class. Its methods do what
`replay.handlers` does on our engine: read the arguments with the hints of the handler, check their number, call the
code inside of the worker's interceptors, and translate what it returns or raises.

The user's class is not marked or changed, so the same class may be registered with workers of both engines, and with
several workers of different converters.

Rejected: marking the functions of the user's class with temporalio's decorators. temporalio would then read arguments
by its own rules before our code sees them: a wrong argument of a signal would fail the workflow task for ever instead
of being dropped, and dynamic handlers need another signature.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from temporalio import exceptions as theirs
from temporalio import workflow as tw
from temporalio.common import RawValue

from penstock.engines.temporal.failures import to_temporal
from penstock.engines.temporal.port import RunSettings, TemporalPort
from penstock.sdk.converters import ConversionError, UnreadablePayload
from penstock.sdk.failures import ApplicationError, is_cancelled_exception
from penstock.sdk.replay.errors import WorkflowTaskError
from penstock.sdk.replay.interceptors import (
    CodeInvoker,
    ExecuteWorkflowInput,
    HandleQueryInput,
    HandleSignalInput,
    HandleUpdateInput,
    chain,
)
from penstock.sdk.workflow_port.continue_as_new import ContinueAsNewError
from penstock.sdk.workflow_port.info import CURRENT_DETAILS
from penstock.sdk.workflows.definitions import Handler, WorkflowDefinition, sole_exception
from penstock.sdk.workflows.dynamic_calls import handler_arguments, run_arguments

REJECTED = "UpdateRejected"
"""Type of the error by which a validator rejects an update: its cause is what the validator raised."""
LOG = logging.getLogger("penstock.workflow")


class WorkflowShell:
    """The state behind a Temporal workflow object: the user's instance, its port and its handlers."""

    def __init__(self, definition: WorkflowDefinition, settings: RunSettings, args: Sequence[Any]) -> None:
        self._definition, self._settings = definition, settings
        self.port = TemporalPort(settings, self.set_handler)
        invoker = CodeInvoker(lambda: self.port.instance)
        self._inbound, used = chain(settings.interceptors, invoker, self.port)
        asyncio.get_running_loop().penstock_port = used  # type: ignore[attr-defined]
        self._arguments, self._headers = self._run_arguments(args)
        self.port.info.headers = self._headers
        self.port.instance = definition.cls(*(self._arguments if definition.takes_input else ()))

    def _run_arguments(self, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        definition, converter = self._definition, self._settings.converter
        if definition.name is None:
            received, headers = converter.load_raw_call(args)
            return run_arguments(definition, received), headers
        hints = definition.parameters.types
        values, headers = converter.load_call(args, hints, what=f'workflow "{definition.name}"')
        if not definition.parameters.accepts(len(values)):
            raise WorkflowTaskError(
                f'workflow "{definition.name}" takes {definition.parameters.in_words()} arguments, and this run was '
                f"started with {len(values)}"
            )
        return values, headers

    async def run(self) -> Any:
        definition = self._definition
        try:
            value = await self._inbound.execute_workflow(
                ExecuteWorkflowInput(definition.run, self._arguments, self._headers)
            )
        except BaseException as error:
            self._leave(error)
        return self._settings.converter.dump(value, f'result of workflow "{self.port.info.workflow_type}"')

    def _leave(self, error: BaseException) -> NoReturn:
        """Raise what Temporal needs for an error that leaves the code."""
        sole = sole_exception(error)
        if isinstance(sole, ContinueAsNewError):
            body = dict(sole.body)
            tw.continue_as_new(**body)
        if isinstance(error, BaseExceptionGroup) and _is_cancellation(error):
            raise to_temporal(sole_exception(error.exceptions[0]))
        if isinstance(error, asyncio.CancelledError):
            raise error
        failure = self._definition.failure_in(error)
        raise error if failure is None else to_temporal(failure)

    # ── handlers ────────────────────────────────────────────────────────────────────────────────────────

    async def signal(self, handler: Handler, name: str, args: Sequence[Any]) -> None:
        try:
            values, headers = self._read(handler, name, args)
        except UnreadablePayload:
            raise
        except (ApplicationError, ConversionError) as error:
            if not self.port.is_silent:
                run = self.port.info
                LOG.error(
                    "Signal %r of workflow %s (run %s) was dropped: %s",
                    name,
                    run.workflow_id,
                    run.run_id,
                    error,
                )
            return
        try:
            await self._inbound.handle_signal(HandleSignalInput(name, values, handler, headers))
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self._leave(error)

    async def update(self, handler: Handler, name: str, args: Sequence[Any]) -> Any:
        try:
            values, headers = self._read(handler, name, args)
            current = self.port.current_update()
            value = await self._inbound.handle_update_handler(
                HandleUpdateInput(name, values, handler, headers, "" if current is None else current.id)
            )
            return self._settings.converter.dump(value, f'result of update "{name}"')
        except UnreadablePayload:
            raise
        except ConversionError as error:
            raise to_temporal(error)  # noqa: B904 - it has its causes
        except asyncio.CancelledError as error:
            raise to_temporal(ApplicationError("The update was cancelled", type="Cancelled")) from error
        except BaseException as error:
            self._leave(error)

    def validate(self, handler: Handler, name: str, args: Sequence[Any]) -> None:
        """Run the validator of an update, if it has one. Arguments that do not fit fail the update itself."""
        if handler.validator is None:
            return
        self.port.read_only = "a validator"
        try:
            values, headers = self._read(handler, name, args)
            self._inbound.handle_update_validator(HandleUpdateInput(name, values, handler, headers))
        except Exception as error:
            rejection = theirs.ApplicationError(f"Update {name!r} was rejected", type=REJECTED)
            raise rejection from to_temporal(error)
        finally:
            self.port.read_only = None

    def query(self, handler: Handler, name: str, args: Sequence[Any]) -> Any:
        self.port.read_only = "a query"
        try:
            values, headers = self._read(handler, name, args)
            result = self._inbound.handle_query(HandleQueryInput(name, values, handler, headers))
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise ApplicationError(
                    f'The handler of query "{name}" is async; queries answer at once', type="Query"
                )
            return self._settings.converter.dump(result, f'result of query "{name}"')
        except Exception as error:
            raise to_temporal(error)  # noqa: B904 - it has its causes
        finally:
            self.port.read_only = None

    def set_handler(self, kind: str, name: str | None, handler: Handler | None) -> None:
        """Set or remove a handler with temporalio, which delivers buffered messages to it."""
        fn = None if handler is None else _bound(kind, self, handler)
        if kind == "update":
            validator = None if handler is None else _bound("validator", self, handler)
            if name is None:
                tw.set_dynamic_update_handler(fn, validator=validator)
            else:
                tw.set_update_handler(name, fn, validator=validator)
            return
        if name is None:
            setter: Any = {"signal": tw.set_dynamic_signal_handler, "query": tw.set_dynamic_query_handler}[
                kind
            ]
            setter(fn)
            return
        named: Any = {"signal": tw.set_signal_handler, "query": tw.set_query_handler}[kind]
        named(name, fn)

    def _read(self, handler: Handler, name: str, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        what, converter = f'{handler.kind} "{name}"', self._settings.converter
        if handler.name is None:
            received, headers = converter.load_raw_call(args, what=what)
            return handler_arguments(handler, name, received), headers
        values, headers = converter.load_call(args, handler.parameters.types, what=what)
        if not handler.parameters.accepts(len(values)):
            raise ApplicationError(
                f'{handler.kind} "{name}" takes {handler.parameters.in_words()} arguments, not {len(values)}',
                type="WrongArguments",
                non_retryable=True,
            )
        return values, headers


def temporal_class(definition: WorkflowDefinition, settings: RunSettings) -> type:
    """Return a class for temporalio's `Worker(workflows=[…])` that runs a definition.

    Args:
        definition: the workflow.
        settings: what the runs of the worker share.
    """
    name = definition.cls.__name__
    members: dict[str, Any] = {"__module__": definition.cls.__module__, "__qualname__": name}
    members |= _run_members(definition, settings)
    for handlers in (definition.signals, definition.queries, definition.updates):
        for handler in handlers.values():
            members[f"{handler.kind}_{len(members)}"] = _method(handler)
    members["current_details"] = _Marked(_current_details, tw.query(name=CURRENT_DETAILS))
    members = {
        each: member.applied(each, definition.cls) if isinstance(member, _Marked) else member
        for each, member in members.items()
    }
    made = type(name, (), members)
    if definition.name is None:
        return tw.defn(dynamic=True, sandboxed=False)(made)
    return tw.defn(name=definition.name, sandboxed=False)(made)


def _run_members(definition: WorkflowDefinition, settings: RunSettings) -> dict[str, Any]:
    async def run(self: Any, *_: Any) -> Any:
        return await self.shell.run()

    def __init__(self: Any, *args: Any) -> None:  # noqa: N807
        self.shell = WorkflowShell(definition, settings, args)

    async def run_any(self: Any, args: Sequence[RawValue]) -> Any:
        return await self.shell.run()

    def init_any(self: Any, args: Sequence[RawValue]) -> None:
        self.shell = WorkflowShell(definition, settings, _opened(args))

    if definition.name is None:
        return {"__init__": _Marked(init_any, tw.init), "run": _Marked(run_any, tw.run)}
    return {"__init__": _Marked(__init__, tw.init), "run": _Marked(run, tw.run)}


def _current_details(self: Any) -> str:
    return tw.get_current_details()


class _Marked:
    """A function and the decorator for it, applied once the function has its final name."""

    def __init__(self, fn: Callable[..., Any], decorator: Callable[[Any], Any]) -> None:
        self.fn, self.decorator = fn, decorator

    def applied(self, name: str, cls: type) -> Any:
        """Return the decorated method. temporalio finds out by these names where it is defined."""
        self.fn.__name__, self.fn.__qualname__ = name, f"{cls.__name__}.{name}"
        self.fn.__module__ = cls.__module__
        self.fn.__annotations__.pop("self", None)  # it would count as an argument
        return self.decorator(self.fn)


def _method(handler: Handler) -> _Marked:
    """Return the method for a handler of the class, with its decorator."""
    fn = _METHODS[handler.kind, handler.name is None](handler)
    how: Any = {"dynamic": True} if handler.name is None else {"name": handler.name}
    if not handler.warns_if_unfinished:
        how["unfinished_policy"] = tw.HandlerUnfinishedPolicy.ABANDON
    kind: Any = getattr(tw, handler.kind)

    def decorate(fn: Any) -> Any:
        marked = kind(**how)(fn)
        if handler.kind == "update":
            validator = _METHODS["validator", handler.name is None](handler)
            validator.__annotations__.pop("self", None)
            marked.validator(validator)
        return marked

    return _Marked(fn, decorate)


def _named_signal(handler: Handler) -> Any:
    async def call(self: Any, *args: Any) -> None:
        await self.shell.signal(handler, handler.name, args)

    return call


def _any_signal(handler: Handler) -> Any:
    async def call(self: Any, name: str, args: Sequence[RawValue]) -> None:
        await self.shell.signal(handler, name, _opened(args))

    return call


def _named_query(handler: Handler) -> Any:
    def call(self: Any, *args: Any) -> Any:
        return self.shell.query(handler, handler.name, args)

    return call


def _any_query(handler: Handler) -> Any:
    def call(self: Any, name: str, args: Sequence[RawValue]) -> Any:
        return self.shell.query(handler, name, _opened(args))

    return call


def _named_update(handler: Handler) -> Any:
    async def call(self: Any, *args: Any) -> Any:
        return await self.shell.update(handler, handler.name, args)

    return call


def _any_update(handler: Handler) -> Any:
    async def call(self: Any, name: str, args: Sequence[RawValue]) -> Any:
        return await self.shell.update(handler, name, _opened(args))

    return call


def _named_validator(handler: Handler) -> Any:
    def call(self: Any, *args: Any) -> None:
        self.shell.validate(handler, handler.name, args)

    return call


def _any_validator(handler: Handler) -> Any:
    def call(self: Any, name: str, args: Sequence[RawValue]) -> None:
        self.shell.validate(handler, name, _opened(args))

    return call


_METHODS: dict[tuple[str, bool], Callable[[Handler], Any]] = {
    ("signal", False): _named_signal,
    ("signal", True): _any_signal,
    ("query", False): _named_query,
    ("query", True): _any_query,
    ("update", False): _named_update,
    ("update", True): _any_update,
    ("validator", False): _named_validator,
    ("validator", True): _any_validator,
}


def _bound(kind: str, shell: WorkflowShell, handler: Handler) -> Any:
    """Return a handler to set at run time: a function without `self`, with the hints of a dynamic one if it is one."""
    method = _METHODS[kind, handler.name is None](handler)
    holder = type("Holder", (), {"shell": shell})()
    return method.__get__(holder)


def _opened(args: Sequence[RawValue]) -> list[Any]:
    """Return raw values as plain data."""
    converter = tw.payload_converter()
    return [converter.from_payload(each.payload) for each in args]


def _is_cancellation(error: BaseException) -> bool:
    """Whether an error is a cancellation; for a group, whether each of its errors is."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancellation(each) for each in error.exceptions)
    return is_cancelled_exception(error)
