"""`Penstock`: an app with tasks, workflows and activities, run by the workers of one program."""

from __future__ import annotations

import importlib
import os
import ssl as tls
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeVar, overload

from penstock.dispatch import DispatchConfig
from penstock.sdk.activities.definition import ActivityDefinition, ActivityMark, RunsIn, checked_tags
from penstock.sdk.activities.routing import RoutingKey
from penstock.sdk.app_config.app import AppConfig
from penstock.sdk.app_config.checks import is_a
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.interceptors import ClientInterceptor, OnLostLease
from penstock.sdk.clients.schedules.schedule import Schedule
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.plugins import Plugin
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.tasks.app_queues_config import (
    check_task_queue,
    checked_config,
    home_queue,
    queues_of,
    server_url,
)
from penstock.sdk.tasks.client_pool import CONNECTION_OPTIONS, ClientPool
from penstock.sdk.tasks.declared_schedules import (
    DeclaredSchedules,
    ScheduleNotice,
    TaskSpec,
    scheduled_task,
    schedules_of_file,
    task_spec,
)
from penstock.sdk.tasks.handle import TaskHandle
from penstock.sdk.tasks.options import DECORATOR_OPTIONS, TaskOptions, queue_named
from penstock.sdk.tasks.task import Task
from penstock.sdk.workflows.definitions import WorkflowDefinition

if TYPE_CHECKING:
    from penstock.sdk.worker.worker import Worker

P = ParamSpec("P")
CallT = TypeVar("CallT")
ResultT = TypeVar("ResultT")
WorkflowT = TypeVar("WorkflowT", bound=type)

Running: TypeAlias = Coroutine[object, None, ResultT]
"""The result of calling an async function, without `Any`, which would hide the result type from type checkers."""
TASKS_AT_ONCE = 100


class _Decorator:
    """`@app.task(...)` before it is applied. It distinguishes async and sync functions for type checkers."""

    def __init__(self, make: Callable[[Callable[..., Any]], Task[..., Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(
        self, fn: Callable[P, Coroutine[Any, Any, ResultT]]
    ) -> Task[P, Running[ResultT], ResultT]: ...
    @overload
    def __call__(self, fn: Callable[P, ResultT]) -> Task[P, ResultT, ResultT]: ...
    def __call__(self, fn: Callable[..., Any]) -> Task[..., Any, Any]:
        return self._make(fn)


class Penstock:
    """An app: tasks (functions decorated with `@app.task`), workflows and activities.

    Creating an app does not connect; the first send does, in the running event loop. `penstock worker module:app`
    runs everything in it.
    """

    def __init__(
        self,
        name: str = "app",
        url: str | Sequence[str] | None = None,
        *,
        config: AppConfig | None = None,
        queue: str | None = None,
        queues: Sequence[str] = (),
        include: Sequence[str] = (),
        namespace: str | None = None,
        token: str | None = None,
        control_token: str | None = None,
        worker_token: str | None = None,
        signature_key: str | None = None,
        worker_signature_key: str | None = None,
        signature_profile: str | None = None,
        profile: str | None = None,
        data_converter: DataConverter = DEFAULT,
        interceptors: Sequence[ClientInterceptor] = (),
        plugins: Sequence[Plugin] = (),
        ssl: tls.SSLContext | bool = True,
        insecure: bool | None = None,
    ) -> None:
        """Create an app. The connection options are those of `Client.connect`.

        Args:
            name: name of the app, recorded with the caps that its workers set.
            url: address of the server, or several of servers that share a database.
            config: queues, caps and claim options. Queues are then not given here.
            queue: queue of tasks that name none; `default` unless given.
            queues: further queues that the app uses.
            include: modules that define tasks of the app. Workers import them.
            namespace: namespace of all requests.
            token: token for a server that authenticates by tokens.
            control_token: token for client requests, in place of `token`.
            worker_token: token for worker requests, in place of `token`.
            signature_key: key for a server that requires signatures, as `operator:secret`.
            worker_signature_key: key for worker requests, in place of `signature_key`.
            signature_profile: what is signed, `penstock` or `body`.
            profile: name of a profile in the profiles file.
            data_converter: encodes arguments and decodes results.
            interceptors: client interceptors, outermost first.
            plugins: plug-ins of the app's clients and workers.
            ssl: TLS context; True verifies certificates with the default context, False disables verification.
            insecure: whether tokens may be sent over plain http to another machine.
        """
        arguments = dict(locals())
        if not is_a(name, str):
            hint = ": write config=AppConfig(…)" if isinstance(name, AppConfig) else ""
            raise TypeError(
                f"The name of an app is text, such as Penstock('shop'), not {type(name).__name__}{hint}"
            )
        if not name or not name.isprintable():
            raise ValueError(f"An app has a name, such as Penstock('shop'), not {name!r}")
        for what, given in (("queues", queues), ("include", include)):
            if isinstance(given, str):
                raise TypeError(f"{what} is a list: {what}=[…]")
        self.name = name
        self.config = checked_config(config, queue=queue, queues=queues)
        """Queues, caps and claim options of the app; None if tasks name their queues and nothing is capped."""
        self.queue = queue_named(home_queue(config, queue))
        """The queue of tasks that name none; with several queues, the one that is served first."""
        self.include = tuple(include)
        """Modules that define tasks of the app. Workers import them."""
        self.tasks: dict[str, Task[..., Any, Any]] = {}
        self.schedules: dict[str, Schedule] = {}
        """The schedules that tasks declare, by task."""
        self.workflows: list[type] = []
        self.activities: list[Callable[..., Any]] = []
        self._named: dict[tuple[str, str | None], Any] = {}
        connection = {name: arguments[name] for name in CONNECTION_OPTIONS}
        self.clients = ClientPool(data_converter, **connection | {"url": server_url(config, url)})
        self._queues = queues_of(f"the app {name!r}", config, [queue_named(each) for each in queues])

    def __repr__(self) -> str:
        return f"Penstock({self.name!r})"

    # Definitions

    @overload
    def task(
        self, fn: Callable[P, Coroutine[Any, Any, ResultT]], /
    ) -> Task[P, Running[ResultT], ResultT]: ...
    @overload
    def task(self, fn: Callable[P, ResultT], /) -> Task[P, ResultT, ResultT]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: timedelta | None = None,
        heartbeat_timeout: timedelta | None = None,
        priority: Priority | int | None = None,
        good_until: timedelta | datetime | None = None,
        on_lost_lease: OnLostLease | None = None,
        runs_in: RunsIn | None = None,
        auto_heartbeat: bool | timedelta | None = None,
        routing_key: RoutingKey | None = None,
        tags: Collection[str] = (),
        pack: str | None = None,
        schedule: TaskSpec | None = None,
    ) -> _Decorator: ...
    def task(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: RetryPolicy | int | None = None,
        timeout: timedelta | None = None,
        heartbeat_timeout: timedelta | None = None,
        priority: Priority | int | None = None,
        good_until: timedelta | datetime | None = None,
        on_lost_lease: OnLostLease | None = None,
        runs_in: RunsIn | None = None,
        auto_heartbeat: bool | timedelta | None = None,
        routing_key: RoutingKey | None = None,
        tags: Collection[str] = (),
        pack: str | None = None,
        schedule: TaskSpec | None = None,
    ) -> Any:
        """Make a function a task. Calling it runs it as before; `await add.send(1, 2)` lets a worker run it.

        Args:
            fn: the function, if the decorator is used without arguments.
            name: name of the task; that of the function unless given.
            queue: task queue; that of the app unless given.
            retry: retry policy, or the number of retries after the first attempt. Without it there are none.
            timeout: timeout of one attempt.
            heartbeat_timeout: maximum time between two heartbeats.
            priority: priority level, fairness key and weight.
            good_until: latest start, as a time or as a duration after it may first start. After that it has expired.
            on_lost_lease: what happens if its worker dies: `fail` (as `WORKER_CRASHED`, subject to `retry`) or
                `redeliver`, for work that may run twice.
            runs_in: `process` runs the function in a process, for CPU-bound work.
            auto_heartbeat: send heartbeats while the function runs; True, or the interval.
            routing_key: what determines its queue if a workflow calls it; see `@activity.defn`.
            tags: names by which worker scopes select tasks.
            pack: name of a group of definitions by which worker scopes select them.
            schedule: when the task is sent by itself: a cron expression in UTC such as `0 3 * * *`, a timedelta as
                interval, or a `ScheduleSpec`. The schedule is `APP.TASK`; a worker creates or changes it when it
                starts. A pause by `penstock schedule pause` survives a deploy.
        """
        arguments = dict(locals())
        options = TaskOptions(queue=self.queue).replaced(
            {each: arguments[each] for each in DECORATOR_OPTIONS}
        )
        marks = checked_tags(tags, "@app.task")
        activity_mark = ActivityMark(name, False, runs_in, auto_heartbeat, routing_key, marks, pack)

        def make(function: Callable[..., Any]) -> Task[..., Any, Any]:
            spec = None if schedule is None else task_spec(schedule, function)
            task = self._add_task(function, activity_mark, options, queue)
            if spec is not None:
                self.schedules[task.name] = scheduled_task(task.name, options, spec)
            return task

        decorator = _Decorator(make)
        return decorator if fn is None else decorator(fn)

    def _add_task(
        self,
        fn: Callable[..., Any],
        activity_mark: ActivityMark,
        options: TaskOptions,
        given_queue: str | None,
    ) -> Task[..., Any, Any]:
        if self.config is not None:
            check_task_queue(self.config, self.name, fn, activity_mark.name, given_queue)
        task: Task[..., Any, Any] = Task(fn, activity_mark, self.clients, self._queues, options)
        self._take_name("task", task.name, task)
        self.tasks[task.name] = task
        self._queues.use(task.queue)
        return task

    @overload
    def workflow(self, cls: WorkflowT, /) -> WorkflowT: ...
    @overload
    def workflow(self, /, *, queue: str | None = None) -> Callable[[WorkflowT], WorkflowT]: ...
    def workflow(self, cls: Any = None, /, *, queue: str | None = None) -> Any:
        """Register a workflow with the app, as a decorator above `@workflow.defn` or called with the class.

        Args:
            cls: the workflow class, if the decorator is used without arguments.
            queue: task queue that runs it; that of the app unless given.
        """

        def add(found: WorkflowT) -> WorkflowT:
            self.add(workflows=[found], queue=queue)
            return found

        return add if cls is None else add(cls)

    def add(
        self,
        *,
        workflows: Sequence[type] = (),
        activities: Sequence[Callable[..., Any]] = (),
        queue: str | None = None,
    ) -> None:
        """Register workflows and activities with the app.

        Args:
            workflows: classes decorated with `@workflow.defn`.
            activities: functions decorated with `@activity.defn`.
            queue: task queue that runs them; that of the app unless given.
        """
        for cls in workflows:
            self._take_name("workflow", WorkflowDefinition.of(cls).name, cls)
            self.workflows.append(cls)
        for fn in activities:
            self._take_name("activity", ActivityDefinition.to_run(fn).name, fn)
            self.activities.append(fn)
        if workflows or activities:
            chosen = self.queue if queue is None else queue_named(queue)
            if self.config is not None:
                self.check_queue(chosen)
            self._queues.use(chosen)

    def _take_name(self, kind: str, name: str | None, new: Any) -> None:
        """Reserve a name. Tasks are activities, so they share their names."""
        there = self._named.setdefault(("workflow" if kind == "workflow" else "activity", name), new)
        if there is not new:
            raise ValueError(
                f'the app {self.name!r} has a {kind} "{name}" already: {_place(there)} and {_place(new)}.'
                " Name one of them otherwise with name=…"
            )

    @property
    def queues(self) -> list[str]:
        """The queues that tasks, workflows and activities use, and the declared ones."""
        return self._queues.names

    def check_queue(self, name: str) -> None:
        """Raise `UnknownQueueError` if the app has no queue of this `name`."""
        self._queues.check(name)

    # Connection

    @property
    def connection(self) -> ConnectOptions:
        """The server address and credentials."""
        return self.clients.options

    @property
    def data_converter(self) -> DataConverter:
        return self.clients.data_converter

    async def apply_schedules(self, dispatch: DispatchConfig | None = None) -> Sequence[ScheduleNotice]:
        """Create and change the schedules that are declared, and pause those that are declared no more.

        `penstock worker` does so when it starts. Returns the lines to log.

        Args:
            dispatch: a dispatch configuration, whose `[penstock.schedules.NAME]` are declarations, too. One with the
                name of a task takes the place of the task's own.
        """
        declared = self.schedules | ({} if dispatch is None else schedules_of_file(dispatch))
        return await DeclaredSchedules(await self.client(), self.name, declared).apply()

    async def client(self) -> Client:
        """Return the app's client in the running event loop, for everything beyond tasks."""
        return await self.clients.get()

    def handle(self, id: str) -> TaskHandle[Any]:  # noqa: A002
        """Return a handle of any task; `add.handle(id)` also knows the type of the result.

        Args:
            id: the task id.
        """
        return TaskHandle(self.clients, id)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self.clients.close()

    def close_sync(self) -> None:
        """Close the connections of sync code."""
        self.clients.close_sync()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Workers

    @property
    def tasks_at_once(self) -> int:
        """The default concurrency of a worker: the number of cores if a task runs in a process."""
        running = [*self.tasks.values(), *self.activities]
        busy = any(ActivityDefinition.must_be(each).kind == "process" for each in running)
        return (os.cpu_count() or 1) if busy else TASKS_AT_ONCE

    def worker(
        self, client: Client, queue: str | None = None, *, concurrency: int | None = None, **options: Any
    ) -> Worker:
        """Create a worker for one of the app's queues, with all tasks, workflows and activities of the app.

        Args:
            client: the client of the worker.
            queue: the queue to serve; that of the app unless given.
            concurrency: tasks that run at a time.
            options: further options of `Worker`.
        """
        # imported here: programs that only send do not need it, and neither do child processes
        from penstock.sdk.worker.worker import Worker

        chosen = self.queue if queue is None else queue
        self.check_queue(chosen)
        for module in self.include:
            importlib.import_module(module)
        if not self.workflows:
            options.setdefault("max_concurrent_local_activities", 0)
        return Worker(
            client,
            task_queue=chosen,
            workflows=self.workflows,
            activities=[*self.tasks.values(), *self.activities],
            max_concurrent_activity_tasks=self.tasks_at_once if concurrency is None else concurrency,
            **options,
        )


def _place(found: Any) -> str:
    return f"{getattr(found, '__module__', '?')}.{getattr(found, '__qualname__', type(found).__qualname__)}"
