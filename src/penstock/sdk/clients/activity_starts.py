"""Standalone activities."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Unpack, overload

from penstock.sdk.call_targets import UNSET
from penstock.sdk.clients.base_client import BaseClient
from penstock.sdk.clients.call_types import ArgT, AsyncCallable, ResultT, awaiting_result
from penstock.sdk.clients.descriptions import ActivityExecutionDescription
from penstock.sdk.clients.handles import ActivityHandle
from penstock.sdk.clients.interceptors import StartedActivity
from penstock.sdk.clients.operations.async_activity import AsyncActivityHandle
from penstock.sdk.clients.starts import ActivityStart, NamedActivityOptions, StandaloneActivityOptions
from penstock.sdk.failures import ServerRefused

PAGE = 200


class ActivityStarts(BaseClient):
    """The part of `Client` that starts and finds standalone activities."""

    @overload
    async def start_activity(
        self, activity: Callable[[], Awaitable[ResultT]], **options: Unpack[StandaloneActivityOptions]
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self, activity: Callable[[], ResultT], **options: Unpack[StandaloneActivityOptions]
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: Callable[[ArgT], Awaitable[ResultT]],
        arg: ArgT,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self, activity: Callable[[ArgT], ResultT], arg: ArgT, **options: Unpack[StandaloneActivityOptions]
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: AsyncCallable[ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: Callable[..., ResultT],
        *,
        args: Sequence[Any],
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: str,
        arg: Any = UNSET,
        *,
        result_type: type[ResultT],
        **options: Unpack[NamedActivityOptions],
    ) -> ActivityHandle[ResultT]: ...
    @overload
    async def start_activity(
        self,
        activity: str,
        arg: Any = UNSET,
        *,
        result_type: None = None,
        **options: Unpack[NamedActivityOptions],
    ) -> ActivityHandle[Any]: ...
    async def start_activity(
        self,
        activity: Any,
        arg: Any = UNSET,
        *,
        args: Sequence[Any] = (),
        result_type: Any = None,
        **options: Unpack[StandaloneActivityOptions],
    ) -> ActivityHandle[Any]:
        """Start an activity without a workflow: a durable task with retries and timeouts.

        Args:
            activity: the activity, or its name.
            arg: the only argument of the activity.
            args: the arguments, if there are several.
            result_type: type of the result, if the activity is given by name.
            options: how to start it, see `StandaloneActivityOptions`: `id`, `task_queue`, timeouts, policies and
                others.
        """
        start = ActivityStart(activity, arg, args=args, result_type=result_type, **options)
        started = await self._context.outbound.start_activity(start.input_by(self.dispatch()))
        return self._handle(start, started)

    execute_activity = awaiting_result(start_activity)

    async def start_activities(
        self, starts: Sequence[ActivityStart[ResultT]], *, return_exceptions: bool = False
    ) -> list[ActivityHandle[ResultT]]:
        """Start many standalone activities in few requests. Each succeeds or is refused on its own.

        Args:
            starts: the activities to start.
            return_exceptions: return refusals in place of handles. Otherwise the first one is raised, after all
                starts were sent.
        """
        config = self.dispatch()
        outcomes = await self._context.outbound.start_activities([each.input_by(config) for each in starts])
        handles: list[Any] = [
            outcome if isinstance(outcome, ServerRefused) else self._handle(start, outcome)
            for start, outcome in zip(starts, outcomes, strict=True)
        ]
        refused = next((each for each in handles if isinstance(each, ServerRefused)), None)
        if refused is not None and not return_exceptions:
            raise refused
        return handles

    def _handle(self, start: ActivityStart[Any], started: StartedActivity) -> ActivityHandle[Any]:
        return ActivityHandle(
            self._context,
            started.id,
            run_id=started.run_id,
            is_new=started.is_new,
            result_type=start.result_type,
        )

    @overload
    def get_activity_handle(
        self, id: str, *, run_id: str | None = None, result_type: type[ResultT]
    ) -> ActivityHandle[ResultT]: ...
    @overload
    def get_activity_handle(
        self, id: str, *, run_id: str | None = None, result_type: None = None
    ) -> ActivityHandle[Any]: ...
    def get_activity_handle(
        self,
        id: str,  # noqa: A002
        *,
        run_id: str | None = None,
        result_type: Any = None,
    ) -> ActivityHandle[Any]:
        """Return a handle of an existing standalone activity, without contacting the server.

        Args:
            id: the activity id.
            run_id: a run of that id; None is the latest.
            result_type: type of the result.
        """
        return ActivityHandle(self._context, id, run_id=run_id, result_type=result_type)

    def get_async_activity_handle(
        self,
        *,
        task_token: str | None = None,
        activity_id: str | None = None,
        workflow_id: str | None = None,
        run_id: str | None = None,
    ) -> AsyncActivityHandle:
        """Return a handle that completes an activity from outside its worker, without contacting the server.

        Args:
            task_token: `activity.info().task_token`; a report counts only for the attempt that it names.
            activity_id: `activity.info().activity_id`, or the id of a standalone activity, for the attempt that runs.
            workflow_id: with `activity_id`: its workflow, which the server checks.
            run_id: with `activity_id`: its run, which the server checks.
        """
        if (task_token is None) == (activity_id is None):
            raise TypeError("An activity is named by its task_token or its activity_id: pass one of them")
        if task_token is None:
            return AsyncActivityHandle(
                self._context, str(activity_id), workflow_id=workflow_id, run_id=run_id
            )
        named, slash, attempt = task_token.rpartition("/")
        if not slash or workflow_id is not None or run_id is not None:
            raise ValueError("A task_token is that of activity.info(), and names workflow and run already")
        return AsyncActivityHandle(self._context, named, attempt_id=attempt)

    async def list_activities(
        self, *, status: str | None = None, page_size: int = PAGE, limit: int | None = None
    ) -> AsyncIterator[ActivityExecutionDescription]:
        """Yield standalone activities, newest first. Pages are fetched on demand.

        Args:
            status: running, completed or failed; None is all.
            page_size: activities per request.
            limit: maximum number of activities; None is all.
        """
        async for body in self._pages("activities", {"status": status}, page_size, limit):
            yield ActivityExecutionDescription.read(body, self.data_converter)
