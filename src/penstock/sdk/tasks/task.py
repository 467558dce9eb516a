"""`Task`: a function that can be called directly or sent to a worker."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack

from penstock.sdk.activities.definition import MARK, ActivityDefinition, ActivityMark, mark
from penstock.sdk.clients.handles import ActivityHandle
from penstock.sdk.clients.starts import ActivityStart, StandaloneActivityOptions
from penstock.sdk.tasks.client_pool import ClientPool
from penstock.sdk.tasks.handle import TaskHandle
from penstock.sdk.tasks.options import SendOptions, TaskOptions, delay_until
from penstock.sdk.tasks.queues import AppQueues

P = ParamSpec("P")
CallT = TypeVar("CallT")
"""The result of a direct call: for an async function, an awaitable."""
ResultT = TypeVar("ResultT")


class Task(functools.partial[CallT], Generic[P, CallT, ResultT]):
    """The result of `@app.task`.

    Calling it runs the function directly. It is a `functools.partial` without arguments, so that workers and
    `workflow.execute_activity` see the function behind it.
    """

    __name__: str
    __qualname__: str

    def __new__(cls, fn: Callable[P, CallT], *_: Any) -> Self:
        return super().__new__(cls, fn)

    def __init__(
        self,
        fn: Callable[P, CallT],
        activity_mark: ActivityMark,
        clients: ClientPool,
        queues: AppQueues,
        options: TaskOptions,
    ) -> None:
        functools.update_wrapper(self, fn)
        self._mark, self._clients, self._queues, self._options = activity_mark, clients, queues, options
        _check_free(fn, activity_mark.name)
        mark(self, activity_mark)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> CallT:
        return super().__call__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, queue={self.queue!r})"

    def __reduce__(self) -> Any:
        """Pickle by name, like a function."""
        return self.__qualname__

    @property
    def name(self) -> str:
        activity_mark: ActivityMark = getattr(self, MARK)
        return str(activity_mark.name)

    @property
    def queue(self) -> str:
        return self._options.queue

    @property
    def options(self) -> TaskOptions:
        """The options of all sends that do not override them."""
        return self._options

    @functools.cached_property
    def definition(self) -> ActivityDefinition:
        """The definition, created on first use, when all names in annotations exist."""
        return ActivityDefinition.must_be(self)

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self)

    @functools.cached_property
    def _fitting(self) -> range:
        """The numbers of positional arguments that form a complete call."""
        definition = self.definition
        return range(definition.required, len(definition.parameters) - definition.keywords + 1)

    @functools.cached_property
    def _words(self) -> StandaloneActivityOptions:
        """The options common to all sends."""
        return self._options.start(self.name)

    def with_options(self, **options: Unpack[SendOptions]) -> Task[P, CallT, ResultT]:
        """Return the task with other options: `add.with_options(priority=Priority(1)).send(1, 2)`.

        Args:
            options: options to override, see `SendOptions`.
        """
        fn: Callable[P, CallT] = self.func
        return Task(fn, self._mark, self._clients, self._queues, self._options.replaced(options))

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[ResultT]:
        """Send the task to a worker. Returns once the server has stored it.

        Args:
            args: positional arguments of the function.
            kwargs: keyword arguments of the function.
        """
        return await self._send(args, kwargs, None)

    async def schedule(
        self, when: timedelta | datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskHandle[ResultT]:
        """Send the task to start after a delay or at a time.

        Args:
            when: a timedelta or an aware datetime.
            args: positional arguments of the function.
            kwargs: keyword arguments of the function.
        """
        return await self._send(args, kwargs, delay_until(when))

    async def send_many(self, calls: Iterable[Sequence[Any]]) -> list[TaskHandle[ResultT]]:
        """Send one task per tuple of arguments, in few requests.

        The first refusal is raised after all were sent; the other tasks exist then.

        Args:
            calls: the positional arguments of each task.
        """
        if self._options.id or self._options.idempotency_key:
            raise TypeError("send_many sends many tasks: they cannot share one id or idempotency_key")
        starts = [self._start(_arguments(each)) for each in calls]
        client = await self._clients.get()
        return [self._handle(each) for each in await client.start_activities(starts)]

    def handle(self, id: str) -> TaskHandle[ResultT]:  # noqa: A002
        """Return a handle of an existing task of this kind.

        Args:
            id: the task id.
        """
        return TaskHandle(self._clients, id, result_type=self.definition.ret_type)

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[ResultT]:
        """Blocking version of `send`."""
        return self._clients.wait(self.send(*args, **kwargs))

    def schedule_sync(
        self, when: timedelta | datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskHandle[ResultT]:
        return self._clients.wait(self.schedule(when, *args, **kwargs))

    def send_many_sync(self, calls: Iterable[Sequence[Any]]) -> list[TaskHandle[ResultT]]:
        return self._clients.wait(self.send_many(calls))

    async def _send(
        self, args: Sequence[Any], kwargs: dict[str, Any], delay: timedelta | None
    ) -> TaskHandle[ResultT]:
        given, options = self._positional(args, kwargs), self._start_options(delay)
        client = await self._clients.get()
        activity: Any = self
        return self._handle(await client.start_activity(activity, args=given, **options))

    def _start(self, args: Sequence[Any]) -> ActivityStart[ResultT]:
        activity: Any = self
        return ActivityStart(activity, args=self._positional(args, {}), **self._start_options(None))

    def _start_options(self, delay: timedelta | None) -> StandaloneActivityOptions:
        self._queues.check(self.queue, self.name)
        return self._words if delay is None else self._words | {"start_delay": delay}

    def _handle(self, found: ActivityHandle[ResultT]) -> TaskHandle[ResultT]:
        hint = self.definition.ret_type
        return TaskHandle(self._clients, found.id, run_id=found.run_id, is_new=found.is_new, result_type=hint)

    def _positional(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Return all arguments by position, including those given by name.

        Omitted ones in between get their defaults.
        """
        if not kwargs and len(args) in self._fitting:
            return args
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f'task "{self.name}": {error}') from None
        known, given = self._signature.parameters, bound.arguments
        last = max((number for number, name in enumerate(known, 1) if name in given), default=0)
        return [given.get(name, each.default) for name, each in itertools.islice(known.items(), last)]


def _arguments(given: Any) -> Sequence[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise TypeError(
            f"send_many takes a tuple of arguments for each task, such as [({given!r},), …], not {given!r}"
        )
    return given


def _check_free(fn: Any, name: str | None) -> None:
    """Refuse a function that needs more than its arguments."""
    if not callable(fn) or isinstance(fn, type):
        raise TypeError(f"@app.task goes above a function, not above {fn!r}")
    path = str(getattr(fn, "__qualname__", ""))
    if "." in path and next(iter(inspect.signature(fn).parameters), None) == "self":
        raise TypeError(
            f'task "{name or path}" is a method, and a worker has no instance to call it on: write a function, or'
            " pass the methods of an instance to app.add(activities=[…])"
        )
