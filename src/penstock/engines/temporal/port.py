"""`TemporalPort`: a run on Temporal, as `penstock.workflow` sees it.

Each method is one call of temporalio. Arguments go out as plain data (see `payloads`), results come back as plain data
and are read by our converter with the type hints of the caller, and errors are translated (see `failures`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from random import Random
from typing import Any, NoReturn, Protocol

from temporalio import workflow as tw

from penstock.dispatch import DispatchConfig
from penstock.engines.temporal import options as translated
from penstock.engines.temporal.failures import from_temporal
from penstock.engines.temporal.payloads import plain_list
from penstock.engines.temporal.refusals import not_here
from penstock.engines.temporal.steps import (
    TemporalActivityStep,
    TemporalChildStep,
    TemporalLocalStep,
    TemporalStep,
)
from penstock.sdk.call_targets import CallTarget
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.dispatch_options import ConfigGetter, no_configuration, resolve_options
from penstock.sdk.priority import Priority
from penstock.sdk.replay.errors import ReadOnlyError
from penstock.sdk.workflow_port.continue_as_new import ContinueAsNewError, NextRun
from penstock.sdk.workflow_port.handles import (
    ActivityCancellationType,
    ChildWorkflowCancellationType,
)
from penstock.sdk.workflow_port.info import Info, ParentInfo, UpdateInfo
from penstock.sdk.workflow_port.port import Options
from penstock.sdk.workflow_port.streams import StreamMessage
from penstock.sdk.workflows.definitions import Handler, WorkflowDefinition

READ_ONLY = "it would change the run"
_WAITING = (
    ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
    ChildWorkflowCancellationType.WAIT_CANCELLATION_REQUESTED,
)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What the runs of a worker share."""

    converter: DataConverter = DEFAULT
    dispatch: ConfigGetter = no_configuration
    interceptors: Sequence[Any] = field(default=())


class HandlerSetter(Protocol):
    """Sets or removes a handler of a run with temporalio."""

    def __call__(self, kind: str, name: str | None, handler: Handler | None) -> None: ...


class TemporalPort:
    """The port of one run.

    Args:
        settings: converter, dispatch configuration and interceptors of the worker.
        set_handler: sets handlers at run time.
    """

    def __init__(self, settings: RunSettings, set_handler: HandlerSetter) -> None:
        self._settings, self._set_handler = settings, set_handler
        self._set_later: dict[tuple[str, str | None], Handler | None] = {}
        self._numbers = count(1)
        self._loop = asyncio.get_running_loop()
        self._info = _started_as()
        self.instance: Any = None
        self.read_only: str | None = None
        """Who may only read, while a query or a validator runs."""

    # ── the run ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def info(self) -> Info:
        self._info.history_length = tw.info().get_current_history_length()
        return self._info

    @property
    def now(self) -> datetime:
        return tw.now()

    @property
    def is_replaying(self) -> bool:
        return tw.unsafe.is_replaying()

    @property
    def is_silent(self) -> bool:
        return tw.unsafe.is_replaying()

    @property
    def random(self) -> Random:
        return tw.random()

    def uuid4(self) -> uuid.UUID:
        self.check_writable("workflow.uuid4()")
        return tw.uuid4()

    @property
    def converter(self) -> DataConverter:
        return self._settings.converter

    @property
    def cancellation_reason(self) -> str | None:
        return tw.cancellation_reason()

    @property
    def current_details(self) -> str:
        return tw.get_current_details()

    @current_details.setter
    def current_details(self, description: str) -> None:
        tw.set_current_details(description)

    def check_writable(self, what: str) -> None:
        if self.read_only is not None:
            raise ReadOnlyError(f"{self.read_only} must not use {what}: {READ_ONLY}.")

    def dispatch(self) -> DispatchConfig | None:
        return None if self.is_replaying else self._settings.dispatch()

    # ── memo, attributes, patches, the next run ─────────────────────────────────────────────────────────

    def memo(self) -> Mapping[str, Any]:
        return tw.memo()

    def upsert_memo(self, entries: Mapping[str, Any]) -> None:
        self.check_writable("upsert_memo")
        tw.upsert_memo(entries)

    def upsert_search_attributes(self, values: Mapping[str, Any]) -> None:
        self.check_writable("upsert_search_attributes")
        known = {pair.key.name: pair.key for pair in tw.info().typed_search_attributes.search_attributes}
        updates = []
        for name, value in values.items():
            if value is not None:
                key = translated.attribute_key(name, value)
                updates.append(key.value_set(translated.attribute_value(value)))
            elif name in known:
                updates.append(known[name].value_unset())
        tw.upsert_search_attributes(updates)
        self._info.search_attributes = _search_attributes()

    def patched(self, change_id: str, *, is_deprecated: bool) -> bool:
        self.check_writable("workflow.patched()")
        if is_deprecated:
            tw.deprecate_patch(change_id)
            return True
        return tw.patched(change_id)

    def continue_as_new(self, successor: NextRun) -> NoReturn:
        if self.read_only is not None:
            raise ReadOnlyError(f"{self.read_only} must not end the run.")
        if successor.priority is not None:
            raise not_here("priority of continue_as_new", "the next run inherits it")
        called = successor.called
        policy = successor.retry_policy
        raise ContinueAsNewError(
            {
                "workflow": called.name,
                "args": self._plain(successor.arguments, f'workflow "{called.name}"'),
                "task_queue": successor.task_queue,
                "run_timeout": successor.run_timeout,
                "retry_policy": None if policy is None else translated.retry_policy(policy),
                "memo": successor.memo,
                "search_attributes": translated.search_attributes(successor.search_attributes),
            }
        )

    # ── activities ──────────────────────────────────────────────────────────────────────────────────────

    def start_activity(
        self,
        called: CallTarget,
        arguments: Sequence[Any],
        options: Options,
        routing_key: str | None,
        config: DispatchConfig | None,
    ) -> TemporalActivityStep[Any]:
        self.check_writable("schedule_activity")
        resolved = resolve_options(called.name, routing_key, options, called.defaults, config)
        inner: Any = tw.start_activity(
            called.name,
            args=self._plain(arguments, f'activity "{called.name}"'),
            **translated.activity_kwargs(options, resolved),
        )
        if resolved.trace is not None and not self.is_replaying:
            resolved.trace()
        given = options.get("result_type")
        hint = called.result_type if given is None else given
        handle: TemporalActivityStep[Any] = TemporalActivityStep(
            inner, self._reader(hint), next(self._numbers), waits=options.get("cancellation_type") in _WAITING
        )
        handle.result_type = hint
        return handle

    def start_local_activity(
        self, called: CallTarget, arguments: Sequence[Any], options: Options, result_type: Any
    ) -> TemporalStep[Any]:
        self.check_writable("activities")
        inner: Any = tw.start_local_activity(
            called.name,
            args=self._plain(arguments, f'activity "{called.name}"'),
            schedule_to_close_timeout=options["schedule_to_close_timeout"],
            start_to_close_timeout=options["start_to_close_timeout"],
            retry_policy=translated.retry_policy(options["retry_policy"]),
            summary=options["summary"],
        )
        handle: TemporalLocalStep[Any] = TemporalLocalStep(
            inner, self._reader(result_type), next(self._numbers), waits=False
        )
        handle.activity_type = called.name
        handle.not_retried = options["retry_policy"].non_retryable_error_types or ()
        return handle

    # ── other workflows ─────────────────────────────────────────────────────────────────────────────────

    async def start_child(
        self, called: CallTarget, arguments: Sequence[Any], child_id: str, options: Options
    ) -> TemporalChildStep[Any]:
        self.check_writable("start_child_workflow")
        plain = self._plain(arguments, f'workflow "{called.name}"')
        started: asyncio.Future[Any] = self._loop.create_future()
        kwargs = translated.child_kwargs(options)

        async def started_and_awaited() -> Any:
            try:
                inner = await tw.start_child_workflow(called.name, args=plain, id=child_id, **kwargs)
            except BaseException as error:
                started.set_exception(error)
                started.exception()
                raise
            started.set_result(inner)
            return await inner

        given = options.get("result_type")
        hint = called.result_type if given is None else given
        handle: TemporalChildStep[Any] = TemporalChildStep(
            self._loop.create_task(started_and_awaited()),
            self._reader(hint),
            next(self._numbers),
            waits=options.get("cancellation_type") in _WAITING,
        )
        handle.id, handle.started, handle.result_type = child_id, started, hint
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
        self.check_writable("signal_external_workflow")
        plain = self._plain(arguments, f'signal "{called.name}"')
        try:
            if child is None:
                target: Any = tw.get_external_workflow_handle(workflow_id, run_id=run_id)
            else:
                target = await asyncio.shield(child.started)
            await target.signal(called.name, args=plain)
        except Exception as error:
            raise from_temporal(error) from None

    async def cancel_workflow(self, workflow_id: str, run_id: str | None, reason: str | None) -> None:
        self.check_writable("cancel_external_workflow")
        if reason is not None:
            raise not_here("the reason of a cancel request to another workflow")
        try:
            await tw.get_external_workflow_handle(workflow_id, run_id=run_id).cancel()
        except Exception as error:
            raise from_temporal(error) from None

    # ── waiting, handlers ───────────────────────────────────────────────────────────────────────────────

    async def receive(self, stream: str, most: int) -> list[StreamMessage]:
        raise not_here("a message stream", "use signals or updates")

    async def sleep(self, seconds: float, summary: str | None) -> None:
        self.check_writable("start_timer")
        await tw.sleep(seconds, summary=summary)

    async def wait_condition(
        self, fn: Callable[[], bool], seconds: float | None, summary: str | None
    ) -> None:
        await tw.wait_condition(fn, timeout=seconds, timeout_summary=summary)

    def as_completed(self, fs: Iterable[Awaitable[Any]], timeout: float | None) -> Iterator[Awaitable[Any]]:
        tasks = [asyncio.ensure_future(each) for each in fs]
        return tw.as_completed(tasks, timeout=timeout)

    @property
    def are_handlers_finished(self) -> bool:
        return tw.all_handlers_finished()

    def current_update(self) -> UpdateInfo | None:
        found = tw.current_update_info()
        return None if found is None else UpdateInfo(found.id, found.name)

    def set_handler(self, kind: str, name: str | None, handler: Handler | None) -> None:
        self._set_later[kind, name] = handler
        self._set_handler(kind, name, handler)

    def get_handler(self, kind: str, name: str | None) -> Callable[..., Any] | None:
        if (kind, name) in self._set_later:
            handler = self._set_later[kind, name]
        else:
            definition = WorkflowDefinition.of(type(self.instance))
            handlers = {
                "signal": definition.signals,
                "query": definition.queries,
                "update": definition.updates,
            }
            handler = handlers[kind].get(name)
        return None if handler is None else handler.called_on(self.instance)

    def _plain(self, arguments: Sequence[Any], what: str) -> list[Any]:
        return plain_list(self._settings.converter, arguments, what)

    def _reader(self, hint: Any) -> Callable[[Any], Any]:
        return lambda plain: self._settings.converter.load(plain, hint)


def _started_as() -> Info:
    """Return the run as it was started. Later changes of the memo are not in it."""
    found = tw.info()
    given, parent = found.priority, found.parent
    return Info(
        workflow_id=found.workflow_id,
        run_id=found.run_id,
        workflow_type=found.workflow_type,
        task_queue=found.task_queue,
        namespace=found.namespace,
        start_time=found.workflow_start_time,
        attempt=found.attempt,
        parent=None if parent is None else ParentInfo(parent.workflow_id, parent.run_id, parent.namespace),
        continued_run_id=found.continued_run_id,
        first_execution_run_id=found.first_execution_run_id,
        original_execution_run_id=found.original_execution_run_id,
        execution_timeout=found.execution_timeout,
        run_timeout=found.run_timeout,
        priority=Priority(given.priority_key or 3, given.fairness_key or None, given.fairness_weight or 1.0),
        memo=dict(tw.memo()),
        search_attributes=_search_attributes(),
    )


def _search_attributes() -> dict[str, Any]:
    """The search attributes of the run as they are now."""
    return {pair.key.name: pair.value for pair in tw.info().typed_search_attributes.search_attributes}
