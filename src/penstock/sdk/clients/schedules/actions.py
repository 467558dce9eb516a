"""What the fires of a schedule start: a workflow, or a standalone activity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Unpack, overload

from penstock.dispatch import DispatchConfig
from penstock.sdk.call_targets import UNSET, activity_target, workflow_target
from penstock.sdk.clients.call_types import (
    ArgT,
    AsyncCallable,
    AsyncMethod0,
    AsyncMethod1,
    NamedCallArgs,
    ResultT,
    SelfT,
)
from penstock.sdk.clients.interceptors import (
    StartWorkflowInput,
    UniqueConflictPolicy,
    UniqueUntil,
    activity_start_body,
    workflow_start_body,
)
from penstock.sdk.clients.schedules.spec import Json
from penstock.sdk.clients.starts import (
    ActivityStart,
    HasRun,
    RunOptions,
    StandaloneRunOptions,
    check_options,
    check_queue,
)
from penstock.sdk.converters import ConversionError, DataConverter
from penstock.sdk.priority import Priority
from penstock.sdk.search_attributes import attributes_by_name

_OF_ONE_START: Final = ("workflow_id", "activity_id", "id_reuse_policy", "id_conflict_policy")
"""Fields of a start that each fire gets for itself."""


class NamedScheduledWorkflowOptions(RunOptions, NamedCallArgs):
    """How a schedule starts workflows that are given by their name or class."""


class NamedScheduledActivityOptions(StandaloneRunOptions, NamedCallArgs):
    """How a schedule starts activities that are given by their name."""


class ScheduleAction(ABC):
    """What a fire starts. The id of what it starts is the schedule's id and the moment of the fire."""

    args: Sequence[Any]

    @abstractmethod
    def on_the_wire(self, converter: DataConverter, config: DispatchConfig | None) -> Json:
        """The action of a request."""


@dataclass(init=False)
class ScheduleActionStartWorkflow(ScheduleAction):
    """Starts a workflow. Its id is the schedule's id and the moment, such as `report-2026-11-16T08:00:00Z`.

    Args:
        workflow: the workflow class, its run method, or its name.
        arg: the only argument of the run method.
        args: the arguments, if there are several.
        options: how to start it, see `RunOptions`.
    """

    workflow: str
    args: Sequence[Any]
    task_queue: str
    execution_timeout: timedelta | None
    run_timeout: timedelta | None
    memo: Mapping[str, Any] | None
    search_attributes: Mapping[str, Any] | None
    priority: Priority | None
    business_key: str | None
    build_id: str | None
    unique_key: str | None
    unique_until: UniqueUntil | None
    unique_conflict_policy: UniqueConflictPolicy | None
    debounce: timedelta | None
    debounce_max: timedelta | None

    @overload
    def __init__(self, workflow: AsyncMethod0[SelfT, ResultT], **options: Unpack[RunOptions]) -> None: ...
    @overload
    def __init__(
        self,
        workflow: AsyncMethod1[SelfT, ArgT, ResultT],
        arg: ArgT,
        **options: Unpack[RunOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        workflow: AsyncCallable[ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[RunOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        workflow: str | type[HasRun[Any]],
        arg: Any = UNSET,
        **options: Unpack[NamedScheduledWorkflowOptions],
    ) -> None: ...
    def __init__(
        self,
        workflow: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        **options: Unpack[RunOptions],
    ) -> None:
        called = workflow_target(workflow)
        _check("workflow", options, _WORKFLOW_OPTIONS)
        check_queue("schedule of a workflow", options)
        self.workflow, self.args = called.name, called.arguments(arg, args)
        self._described: Json = {}
        given: dict[str, Any] = dict(options)
        given["search_attributes"] = attributes_by_name(given.get("search_attributes"))
        for name in _WORKFLOW_OPTIONS:
            setattr(self, name, given.get(name))

    @classmethod
    def described(cls, body: Mapping[str, Any], args: Sequence[Any]) -> ScheduleActionStartWorkflow:
        """An action of a response. Fields without an attribute here are kept as the server wrote them."""
        given: dict[str, Any] = {
            "task_queue": body.get("task_queue") or "default",
            "execution_timeout": _span(body.get("execution_timeout_seconds")),
            "run_timeout": _span(body.get("run_timeout_seconds")),
            "memo": body.get("memo"),
            "search_attributes": body.get("search_attributes"),
            "priority": _priority(body.get("priority")),
            "business_key": body.get("business_key"),
            "build_id": body.get("build_id"),
        }
        present: Any = {name: value for name, value in given.items() if value is not None}
        found = cls(body["workflow_type"], args=args, **present)
        found._described = {name: value for name, value in body.items() if name not in _WORKFLOW_FIELDS}
        if found.priority is None and "priority" in body:
            found._described["priority"] = body["priority"]
        return found

    def on_the_wire(self, converter: DataConverter, config: DispatchConfig | None) -> Json:
        given = {name: value for name in _WORKFLOW_OPTIONS if (value := getattr(self, name)) is not None}
        start = StartWorkflowInput(workflow=self.workflow, args=self.args, id="", request_id="", **given)
        return self._described | _without_ids(workflow_start_body(start, converter))


@dataclass(init=False)
class ScheduleActionStartActivity(ScheduleAction):
    """Starts a standalone activity. Its id is the schedule's id and the moment.

    Args:
        activity: the activity, or its name.
        arg: the only argument of the activity.
        args: the arguments, if there are several.
        options: how to start it, see `StandaloneRunOptions`.
    """

    activity: str
    args: Sequence[Any]
    options: dict[str, Any]

    @overload
    def __init__(self, activity: Callable[[], ResultT], **options: Unpack[StandaloneRunOptions]) -> None: ...
    @overload
    def __init__(
        self,
        activity: Callable[[ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StandaloneRunOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, activity: Callable[[ArgT], ResultT], arg: ArgT, **options: Unpack[StandaloneRunOptions]
    ) -> None: ...
    @overload
    def __init__(
        self,
        activity: Callable[..., ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneRunOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, activity: str, arg: Any = UNSET, **options: Unpack[NamedScheduledActivityOptions]
    ) -> None: ...
    def __init__(
        self,
        activity: str | Callable[..., Any],
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        **options: Unpack[StandaloneRunOptions],
    ) -> None:
        called = activity_target(activity)
        _check("activity", options, _ACTIVITY_OPTIONS)
        self._activity: str | Callable[..., Any] = activity
        self._described: Json = {}
        self._config: DispatchConfig | None = None
        self.activity, self.args = called.name, called.arguments(arg, args)
        self.options = dict(options)

    def resolved_by(self, config: DispatchConfig) -> ScheduleActionStartActivity:
        """Take options that are not given from this dispatch configuration, not from that of the client."""
        self._config = config
        return self

    @classmethod
    def described(cls, body: Mapping[str, Any], args: Sequence[Any]) -> ScheduleActionStartActivity:
        """An action of a response, whose options are kept as the server wrote them."""
        found = cls(body["activity_type"], args=args, task_queue=body["task_queue"])
        found._described = {name: value for name, value in body.items() if name != "input"}
        return found

    def on_the_wire(self, converter: DataConverter, config: DispatchConfig | None) -> Json:
        named = self._activity if self.activity == activity_target(self._activity).name else self.activity
        config = None if self._described else self._config or config
        start: ActivityStart[Any] = ActivityStart(named, args=self.args, **self.options)
        body = _without_ids(activity_start_body(start.input_by(config), converter))
        return self._described | body


_WORKFLOW_OPTIONS: Final = dict.fromkeys(RunOptions.__annotations__)
_WORKFLOW_FIELDS: Final = frozenset(
    {
        *("workflow_type", "task_queue", "input", "execution_timeout_seconds", "run_timeout_seconds", "memo"),
        *("search_attributes", "priority", "business_key", "build_id", "deliver_cancel"),
    }
)
"""Fields of an action that are attributes of it."""
_ACTIVITY_OPTIONS: Final = dict.fromkeys(StandaloneRunOptions.__annotations__)


def read_action(body: Mapping[str, Any], converter: DataConverter) -> ScheduleAction:
    """Read the action of a response. Arguments that this client cannot decode stay as they are."""
    envelope = body.get("input")
    try:
        args = converter.decode_arguments(envelope, what="the arguments of the schedule") if envelope else []
    except ConversionError:
        args = [envelope]
    if "activity_type" in body:
        return ScheduleActionStartActivity.described(body, args)
    return ScheduleActionStartWorkflow.described(body, args)


def _check(kind: str, given: Mapping[str, Any], known: Mapping[str, None]) -> None:
    if "id" in given:
        raise TypeError(
            f"A scheduled {kind} takes no id: each fire has its own, the schedule's id and the moment of the fire"
        )
    check_options(f"schedule of {'an' if kind == 'activity' else 'a'} {kind}", given, known)


def _without_ids(body: Json) -> Json:
    return {name: value for name, value in body.items() if name not in _OF_ONE_START}


def _span(seconds: int | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _priority(body: Any) -> Priority | None:
    return Priority(**body) if isinstance(body, Mapping) else None
