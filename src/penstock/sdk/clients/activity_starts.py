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
