"""Creating, finding and previewing schedules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from penstock.sdk.clients.base_client import BaseClient
from penstock.sdk.clients.schedules.descriptions import (
    ScheduleBatchResult,
    ScheduleDescription,
    SchedulePreview,
    read_warnings,
)
from penstock.sdk.clients.schedules.handle import ScheduleHandle
from penstock.sdk.clients.schedules.schedule import Schedule, ScheduleBackfill
from penstock.sdk.clients.schedules.spec import Json, ScheduleSpec, instant
from penstock.sdk.connection.transport import route
from penstock.sdk.search_attributes import GivenAttributes, attributes_by_name

PAGE = 200


class ScheduleCalls(BaseClient):
    """The part of `Client` for schedules."""

    async def create_schedule(
        self,
        id: str,  # noqa: A002
        schedule: Schedule,
        *,
        trigger_immediately: bool = False,
        backfill: Sequence[ScheduleBackfill] = (),
        memo: Mapping[str, Any] | None = None,
        search_attributes: GivenAttributes | None = None,
    ) -> ScheduleHandle:
        """Create a schedule. Its first fire is at the first moment after now.

        The `warnings` of the handle are what the server warned of, for example that no worker serves the queue.

        Args:
            id: the schedule id, up to 128 printable characters.
            schedule: what it starts, when, and how.
            trigger_immediately: also fire it now, by a second request.
            backfill: periods in the past whose moments are fired now, by further requests.
            memo: memo of the schedule and of the runs that it starts.
            search_attributes: search attributes of the schedule and of the runs that it starts.

        Raises:
            ScheduleAlreadyRunningError: there is a schedule with this id.
            InvalidRequest: a field is wrong; `details["errors"]` names it.
        """
        body: Json = {"schedule_id": id, **schedule.on_the_wire(self.data_converter, self.dispatch())}
        body |= {"paused": True} if schedule.state.paused else {}
        for name, value in (("memo", memo), ("search_attributes", attributes_by_name(search_attributes))):
            if value is not None:
                body[name] = dict(value)
        response = await self.transport.control("POST", route("schedules"), body, idempotent=False)
        handle = ScheduleHandle(self._context, id, self.dispatch, read_warnings(response))
        if backfill:
            await handle.backfill(*backfill)
        if trigger_immediately:
            await handle.trigger()
        return handle

    def get_schedule_handle(self, id: str) -> ScheduleHandle:  # noqa: A002
        """Return a handle of an existing schedule, without contacting the server.

        Args:
            id: the schedule id.
        """
        return ScheduleHandle(self._context, id, self.dispatch)

    async def list_schedules(
        self,
        *,
        status: Literal["active", "paused"] | None = None,
        workflow_type: str | None = None,
        query: str | None = None,
        page_size: int = PAGE,
        limit: int | None = None,
    ) -> AsyncIterator[ScheduleDescription]:
        """Yield schedules, newest first. Pages are fetched on demand.

        Args:
            status: active or paused; None is both.
            workflow_type: only schedules that start this type of workflow or activity.
            query: only schedules that match, such as `TaskQueue = 'reports' AND Failures > 0`.
            page_size: schedules per request.
            limit: maximum number of schedules; None is all.
        """
        narrow = {"status": status, "workflow_type": workflow_type, "query": query}
        async for body in self._pages("schedules", narrow, page_size, limit):
            yield ScheduleDescription.read(body, self.data_converter)

    async def pause_schedules(
        self, query: str, *, note: str | None = None, dry_run: bool = False
    ) -> ScheduleBatchResult:
        """Pause all active schedules that match a query. Runs that they started go on.

        Args:
            query: which, such as `TaskQueue = 'reports'`.
            note: why, for people.
            dry_run: only count them.
        """
        return await self._change_schedules("pause", query, note, dry_run)

    async def resume_schedules(
        self, query: str, *, note: str | None = None, dry_run: bool = False
    ) -> ScheduleBatchResult:
        """Resume all paused schedules that match a query, each at its next moment.

        Args:
            query: which, such as `Note = 'migration'`.
            note: why, for people.
            dry_run: only count them.
        """
        return await self._change_schedules("resume", query, note, dry_run)

    async def _change_schedules(
        self, operation: str, query: str, note: str | None, dry_run: bool
    ) -> ScheduleBatchResult:
        body: Json = {"operation": operation, "query": query}
        body |= ({} if note is None else {"note": note}) | ({"dry_run": True} if dry_run else {})
        result, token = ScheduleBatchResult(), None
        while True:
            response = await self.transport.control(
                "POST",
                route("schedules", "batch-operations"),
                body | ({"token": token} if token else {}),
                idempotent=True,
            )
            result, token = result.plus(response), response["next_token"]
            if token is None:
                return result

    async def preview_schedule(
        self, spec: ScheduleSpec, *, count: int = 10, after: datetime | None = None
    ) -> SchedulePreview:
        """Return the next moments of a specification, in words and with warnings. Nothing is saved.

        Args:
            spec: the specification.
            count: number of moments, up to 100.
            after: moments after this time; None is now.
        """
        body: Json = {"spec": spec.on_the_wire(), "jitter_seconds": spec.jitter_seconds, "count": count}
        body |= {} if after is None else {"after": instant(after, "after")}
        response = await self.transport.control("POST", route("schedules", "preview"), body, idempotent=True)
        return SchedulePreview(
            [datetime.fromisoformat(each) for each in response["next_fire_times"]],
            response["in_words"],
            read_warnings(response),
        )
