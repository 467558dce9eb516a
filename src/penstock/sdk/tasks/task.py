"""A task: a function that can be called as ever, or sent to a worker."""

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
"""What a plain call gives: of an async function, something to await."""
ResultT = TypeVar("ResultT")


class Task(functools.partial[CallT], Generic[P, CallT, ResultT]):
    """What `@app.task` makes of a function.

    Called, it is the function, here and now. It is a `functools.partial` without arguments, so that whatever looks
    at functions, such as a worker or `workflow.execute_activity`, sees the one behind it.
    """

    __name__: str
    __qualname__: str

    def __new__(cls, fn: Callable[P, CallT], *_: Any) -> Self:
        return super().__new__(cls, fn)

    def __init__(
        self,
        fn: Callable[P, CallT],
        told: ActivityMark,
        clients: ClientPool,
        queues: AppQueues,
        options: TaskOptions,
    ) -> None:
        functools.update_wrapper(self, fn)
        self._told, self._clients, self._queues, self._options = told, clients, queues, options
        _check_free(fn, told.name)
        mark(self, told)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> CallT:
        return super().__call__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, queue={self.queue!r})"

    def __reduce__(self) -> Any:
        """By its name, as functions are pickled."""
        return self.__qualname__

    @property
    def name(self) -> str:
        kept: ActivityMark = getattr(self, MARK)
        return str(kept.name)

    @property
    def queue(self) -> str:
        return self._options.queue

    @functools.cached_property
    def definition(self) -> ActivityDefinition:
        """Read when it is needed: by then, all that the annotations name is there."""
        return ActivityDefinition.must_be(self)

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self)

    @functools.cached_property
    def _fitting(self) -> range:
        """How many arguments are a whole call just as they are, if all are given by position."""
        definition = self.definition
        return range(definition.required, len(definition.parameters) - definition.keywords + 1)

    @functools.cached_property
    def _words(self) -> StandaloneActivityOptions:
        """What every send says."""
        return self._options.start(self.name)

    def with_options(self, **options: Unpack[SendOptions]) -> Task[P, CallT, ResultT]:
        """The same task, sent otherwise: `add.with_options(priority=1).send(1, 2)`."""
        fn: Callable[P, CallT] = self.func
        return Task(fn, self._told, self._clients, self._queues, self._options.said(options))

    async def send(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[ResultT]:
        """Have it run by a worker. Returns as soon as the server has it for sure."""
        return await self._send(args, kwargs, None)

    async def schedule(
        self, when: timedelta | datetime, /, *args: P.args, **kwargs: P.kwargs
    ) -> TaskHandle[ResultT]:
        """The same, to begin after a while or at a moment."""
        return await self._send(args, kwargs, delay_until(when))

    async def send_many(self, calls: Iterable[Sequence[Any]]) -> list[TaskHandle[ResultT]]:
        """Send one for each tuple of arguments, with few requests.

        The first refusal is raised once all were sent; the others have been sent then.
        """
        if self._options.id or self._options.idempotency_key:
            raise TypeError("send_many sends many tasks: they cannot share one id or idempotency_key")
        starts = [self._start(_arguments(each)) for each in calls]
        client = await self._clients.get()
        return [self._handle(each) for each in await client.start_activities(starts)]

    def handle(self, id: str) -> TaskHandle[ResultT]:  # noqa: A002
        """A handle of a task of this kind that was sent before."""
        return TaskHandle(self._clients, id, result_type=self.definition.ret_type)

    def send_sync(self, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[ResultT]:
        """`send` for code without async."""
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
        """Arguments travel by position, also those that are given by name. What is left out between is its default."""
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
    """A task needs nothing but its arguments."""
    if not callable(fn) or isinstance(fn, type):
        raise TypeError(f"@app.task goes above a function, not above {fn!r}")
    path = str(getattr(fn, "__qualname__", ""))
    if "." in path and next(iter(inspect.signature(fn).parameters), None) == "self":
        raise TypeError(
            f'task "{name or path}" is a method, and a worker has no object to call it on: write a function, or'
            " give the methods of an object to app.add(activities=[…])"
        )
