"""The app: tasks, and whatever else the workers of one program run, under one name."""

from __future__ import annotations

import importlib
import os
import ssl as tls
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeAlias, TypeVar, overload

from penstock.sdk.activities.definition import ActivityDefinition, ActivityMark, RunsIn, checked_tags
from penstock.sdk.activities.routing import RoutingKey
from penstock.sdk.app_config.app import AppConfig
from penstock.sdk.app_config.checks import is_a
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.interceptors import ClientInterceptor, OnLostLease
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.converters import DEFAULT, DataConverter
from penstock.sdk.priority import Priority
from penstock.sdk.retry import RetryPolicy
from penstock.sdk.tasks.app_queues_config import (
    check_task_queue,
    checked_config,
    home_queue,
    queues_of,
    server_url,
)
from penstock.sdk.tasks.client_pool import ClientPool
from penstock.sdk.tasks.handle import TaskHandle
from penstock.sdk.tasks.options import TaskOptions, queue_named
from penstock.sdk.tasks.task import Task
from penstock.sdk.workflows.definitions import WorkflowDefinition

if TYPE_CHECKING:
    from penstock.sdk.worker.worker import Worker

P = ParamSpec("P")
CallT = TypeVar("CallT")
ResultT = TypeVar("ResultT")
WorkflowT = TypeVar("WorkflowT", bound=type)

Running: TypeAlias = Coroutine[object, None, ResultT]
"""What a call of an async function gives, without an `Any` in it: one would hide the result from type checkers."""
TASKS_AT_ONCE = 100


class _Decorator:
    """`@app.task(…)`, before it has met its function. It keeps async and plain ones apart for type checkers."""

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
    """An app. Making one connects to nothing: the first send does, in the event loop that it is in.

    Tasks are functions under `@app.task`; workflows and activities may be added. `penstock worker module:app` runs
    all of them. Where to connect to is said as in `Client.connect`.
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
        ssl: tls.SSLContext | bool = True,
        insecure: bool | None = None,
    ) -> None:
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
        """Its queues and caps, and how its workers claim tasks; None: each task says its queue, nothing is capped."""
        self.queue = queue_named(home_queue(config, queue))
        """Where tasks go that name no queue; of several queues, the one that is served first."""
        self.include = tuple(include)
        """Modules that define tasks of the app: workers import them."""
        self.tasks: dict[str, Task[..., Any, Any]] = {}
        self.workflows: list[type] = []
        self.activities: list[Callable[..., Any]] = []
        self._named: dict[tuple[str, str | None], Any] = {}
        self.clients = ClientPool(
            data_converter,
            url=server_url(config, url),
            namespace=namespace,
            token=token,
            control_token=control_token,
            worker_token=worker_token,
            signature_key=signature_key,
            worker_signature_key=worker_signature_key,
            signature_profile=signature_profile,
            profile=profile,
            interceptors=interceptors,
            ssl=ssl,
            insecure=insecure,
        )
        self._queues = queues_of(f"the app {name!r}", config, [queue_named(each) for each in queues])

    def __repr__(self) -> str:
        return f"Penstock({self.name!r})"

    # What it runs

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
    ) -> Any:
        """Make a function a task: called, it runs as ever; `await add.send(1, 2)` has a worker run it.

        Without `retry` it is tried once; `retry=3` tries up to three times more. `timeout` is for one attempt. Not
        begun by `good_until` (a moment, or so long after it may begin), it has expired. If its worker dies, it has
        failed as `WORKER_CRASHED` and `retry` decides; `on_lost_lease="redeliver"` has it delivered again, for work
        that may be done twice. `runs_in="process"` is for work that keeps a core busy. `tags` and `pack` are what
        scopes of workers select by; `routing_key` decides where it goes when a workflow calls it, as that of
        `@activity.defn`.
        """
        options = TaskOptions(queue=self.queue).said(
            {
                "queue": queue,
                "retry": retry,
                "timeout": timeout,
                "heartbeat_timeout": heartbeat_timeout,
                "priority": priority,
                "good_until": good_until,
                "on_lost_lease": on_lost_lease,
            }
        )
        marks = checked_tags(tags, "@app.task")
        told = ActivityMark(name, False, runs_in, auto_heartbeat, routing_key, marks, pack)
        decorator = _Decorator(lambda function: self._add_task(function, told, options, queue))
        return decorator if fn is None else decorator(fn)

    def _add_task(
        self, fn: Callable[..., Any], told: ActivityMark, options: TaskOptions, said_queue: str | None
    ) -> Task[..., Any, Any]:
        if self.config is not None:
            check_task_queue(self.config, self.name, fn, told.name, said_queue)
        made: Task[..., Any, Any] = Task(fn, told, self.clients, self._queues, options)
        self._take_name("task", made.name, made)
        self.tasks[made.name] = made
        self._queues.use(made.queue)
        return made

    @overload
    def workflow(self, cls: WorkflowT, /) -> WorkflowT: ...
    @overload
    def workflow(self, /, *, queue: str | None = None) -> Callable[[WorkflowT], WorkflowT]: ...
    def workflow(self, cls: Any = None, /, *, queue: str | None = None) -> Any:
        """Have workers of the app run this workflow, too: above `@workflow.defn`, or called with the class."""

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
        """Have workers of the app run these workflows and activities, too."""
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
        """Tasks are activities, and share their names."""
        there = self._named.setdefault(("workflow" if kind == "workflow" else "activity", name), new)
        if there is not new:
            raise ValueError(
                f'the app {self.name!r} has a {kind} "{name}" already: {_place(there)} and {_place(new)}.'
                " Name one of them otherwise with name=…"
            )

    @property
    def queues(self) -> list[str]:
        """The queues that its tasks, workflows and activities use, and those declared."""
        return self._queues.names

    def check_queue(self, name: str) -> None:
        """Raises `UnknownQueueError` for a queue that the app does not have."""
        self._queues.check(name)

    # Reaching a server

    @property
    def connection(self) -> ConnectOptions:
        """Which server it talks to, and as whom."""
        return self.clients.options

    @property
    def data_converter(self) -> DataConverter:
        return self.clients.data_converter

    async def client(self) -> Client:
        """The app's client in the running event loop, for all that is more than tasks."""
        return await self.clients.get()

    def handle(self, id: str) -> TaskHandle[Any]:  # noqa: A002
        """A handle of any task that was sent; `add.handle(id)` knows the type of the result as well."""
        return TaskHandle(self.clients, id)

    async def close(self) -> None:
        """Close the connections that were made in the running event loop."""
        await self.clients.close()

    def close_sync(self) -> None:
        """Close the connections of code without async."""
        self.clients.close_sync()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Its workers

    @property
    def tasks_at_once(self) -> int:
        """How many tasks a worker runs at once if nobody says: as many as there are cores, if one needs a core."""
        running = [*self.tasks.values(), *self.activities]
        busy = any(ActivityDefinition.must_be(each).kind == "process" for each in running)
        return (os.cpu_count() or 1) if busy else TASKS_AT_ONCE

    def worker(
        self, client: Client, queue: str | None = None, *, concurrency: int | None = None, **options: Any
    ) -> Worker:
        """A worker for one of the app's queues. It knows all tasks, workflows and activities of the app.

        `concurrency` is how many tasks it runs at once; further options are those of `Worker`.
        """
        from penstock.sdk.worker.worker import (
            Worker,
        )  # programs that only send do without, and so do child processes

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
