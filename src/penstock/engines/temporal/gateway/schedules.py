"""Schedules that start workflows. Temporal's have the same parts, so they are translated one by one.

Updates name the fields that change. They are merged into the schedule as the cluster has it, and sent with its conflict
token. A cluster may accept an update and drop it when the token has become old, so the schedule is read again: if it
does not hold what was sent, the update is refused as one of an old version, and clients repeat it. Of cron expressions
this cannot be said, because the cluster returns them as calendars; their spec is not compared.

Lists name schedules without their actions and policies, so each one listed is described.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import datetime, timedelta
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import client as tc
from temporalio.api.schedule.v1 import Schedule
from temporalio.api.workflowservice.v1 import (
    CreateScheduleRequest,
    DescribeScheduleRequest,
    DescribeScheduleResponse,
    ListScheduleMatchingTimesRequest,
    ListSchedulesRequest,
    UpdateScheduleRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from penstock.core.timestamps import instant, iso
from penstock.engines.temporal.gateway import requests
from penstock.engines.temporal.gateway.context import GatewayRequest, Json, refusals
from penstock.engines.temporal.gateway.schedule_bodies import schedule_body, version_of
from penstock.engines.temporal.gateway.schedule_specs import OVERLAP, apply
from penstock.errors import Reason
from penstock.sdk.failures import ServerRefused, refusal

_DEFAULTS: Final = {"overlap_policy": "skip", "catchup_window_seconds": 3600}
_GONE: Final = "schedule_not_found"
_DESCRIBED_AT_ONCE: Final = 8
"""Schedules of a list that are described at the same time."""
BACKFILL_MAX: Final = 10_000
"""Moments of one backfill."""
_SECOND: Final = timedelta(seconds=1)
_JUST_BEFORE: Final = timedelta(milliseconds=1)


async def create(request: GatewayRequest) -> Json:
    name, schedule = request.body["schedule_id"], Schedule()
    given = {field: value for field, value in request.body.items() if value is not None}
    await apply(schedule, GatewayRequest(request.client, (), _DEFAULTS | given, {}))
    schedule.action.start_workflow.workflow_id = name
    made = CreateScheduleRequest(
        **requests.sent_by(request.client, request.key), schedule_id=name, schedule=schedule
    )
    with refusals(_GONE, f"Schedule {name!r}"):
        try:
            await request.client.workflow_service.create_schedule(made, retry=True)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise
            message = f"There is a schedule {name!r} already"
            raise refusal(409, {"reason": "schedule_already_exists", "message": message}) from error
    return {"schedule_id": name, "outcome": "created"}


async def describe(request: GatewayRequest) -> Json:
    with _named(request):
        return await _described(request, request.names[0])


async def list_all(request: GatewayRequest) -> Json:
    """List schedules. The query is Temporal's, over search attributes of schedules."""
    query, client = request.query, request.client
    token = query.get("next_page_token")
    with refusals(_GONE, "The list"):
        page = await client.workflow_service.list_schedules(
            ListSchedulesRequest(
                namespace=client.namespace,
                maximum_page_size=int(query.get("page_size") or 50),
                next_page_token=base64.b64decode(token) if token else b"",
                query=str(query.get("query") or ""),
            ),
            retry=True,
        )
    at_once = asyncio.Semaphore(_DESCRIBED_AT_ONCE)

    async def described(name: str) -> Json | None:
        try:
            with refusals(_GONE, f"Schedule {name!r}", closed=_GONE):
                async with at_once:
                    return await _described(request, name)
        except ServerRefused as refused:
            if refused.reason != _GONE:  # a list of Temporal may name a schedule that was deleted just now
                raise
            return None

    found = await asyncio.gather(*(described(each.schedule_id) for each in page.schedules))
    narrow = {name: query[name] for name in ("status", "workflow_type") if name in query}
    return {
        "schedules": [each for each in found if each is not None and narrow.items() <= each.items()],
        "next_page_token": base64.b64encode(page.next_page_token).decode() if page.next_page_token else None,
    }


async def update(request: GatewayRequest) -> Json:
    """Change the fields that the request has, unless the schedule was changed in the meantime."""
    name, wanted = request.names[0], request.body.get("if_version")
    with _named(request):
        before = await _found(request, name)
        if wanted is not None and wanted != version_of(before):
            raise _conflict(name)
        schedule = Schedule()
        schedule.CopyFrom(before.schedule)
        await apply(schedule, request, before.info.action_count)
        made = UpdateScheduleRequest(
            **requests.sent_by(request.client, request.key),
            schedule_id=name,
            schedule=schedule,
            conflict_token=before.conflict_token,
        )
        try:
            await request.client.workflow_service.update_schedule(made, retry=True)
        except RPCError as error:
            if error.status is not RPCStatusCode.FAILED_PRECONDITION:
                raise
            raise _conflict(name) from error
        after = await _found(request, name)
    if not _holds(after.schedule, schedule, after.info.action_count - before.info.action_count):
        raise _conflict(name)
    return {"schedule_id": name, "outcome": "updated", "version": version_of(after)}


async def pause(request: GatewayRequest) -> Json:
    with _named(request):
        await _handle(request).pause(note=request.body.get("note"))
    return {"schedule_id": request.names[0], "outcome": "paused"}


async def resume(request: GatewayRequest) -> Json:
    with _named(request):
        await _handle(request).unpause(note=request.body.get("note"))
    return {"schedule_id": request.names[0], "outcome": "resumed"}


async def trigger(request: GatewayRequest) -> Json:
    """Fire now. Temporal does not say what it started."""
    with _named(request):
        await _handle(request).trigger(overlap=_overlap(request))
    return {"schedule_id": request.names[0], "outcome": "triggered"}


async def backfill(request: GatewayRequest) -> Json:
    """Fire the moments of a period. Temporal does so later and does not say what became of them: they are planned."""
    body, name = request.body, request.names[0]
    start, end = _period(body)
    with _named(request):
        moments = await _moments(request, start, end)
        if not body.get("dry_run") and moments:
            await _handle(request).backfill(tc.ScheduleBackfill(start, end, _overlap(request)))
    return {
        "schedule_id": name,
        "outcome": "dry_run" if body.get("dry_run") else "backfill_started",
        "fires_attempted": len(moments),
        "results": [{"fire_time": iso(each.ToMilliseconds()), "outcome": "planned"} for each in moments],
    }


async def delete(request: GatewayRequest) -> Json:
    with _named(request):
        await _handle(request).delete()
    return {"schedule_id": request.names[0], "outcome": "deleted"}


def _handle(request: GatewayRequest) -> tc.ScheduleHandle:
    return request.client.get_schedule_handle(request.names[0])


def _named(request: GatewayRequest) -> Any:
    # a deleted schedule is a workflow that has ended
    return refusals(_GONE, f"Schedule {request.names[0]!r}", closed=_GONE)


async def _found(request: GatewayRequest, name: str) -> DescribeScheduleResponse:
    wanted = DescribeScheduleRequest(namespace=request.client.namespace, schedule_id=name)
    return await request.client.workflow_service.describe_schedule(wanted, retry=True)


async def _described(request: GatewayRequest, name: str) -> Json:
    return await schedule_body(request.client, name, await _found(request, name))


def _overlap(request: GatewayRequest) -> tc.ScheduleOverlapPolicy | None:
    policy = request.body.get("overlap_policy")
    return None if policy is None else tc.ScheduleOverlapPolicy(OVERLAP[policy])


def _conflict(name: str) -> ServerRefused:
    message = f"The schedule {name!r} was changed by somebody else. Read it again, then repeat the change."
    return refusal(409, {"reason": Reason.SCHEDULE_VERSION_CONFLICT.value, "message": message})


def _holds(found: Schedule, sent: Schedule, started: int) -> bool:
    """Return whether the cluster has taken an update.

    Args:
        found: the schedule after the update.
        sent: the schedule as it was to be.
        started: starts in the meantime, which have lowered those that remain.
    """
    has, wanted = found.state, sent.state
    return (
        found.action == sent.action
        and found.policies == sent.policies
        and (found.spec == sent.spec or bool(sent.spec.cron_string))
        and has.limited_actions == wanted.limited_actions
        and 0 <= wanted.remaining_actions - has.remaining_actions <= started
        and (has.notes == wanted.notes or has.paused != wanted.paused)  # a pause writes its own note
    )


def _period(body: Json) -> tuple[datetime, datetime]:
    """Return the period of a backfill for Temporal.

    Here the start is a part of it and the end is not. Moments are whole seconds, so a millisecond before each does the
    same on servers whose periods include their start and on those whose do not.
    """
    start_ms, end_ms = instant(body["start_time"]), instant(body["end_time"])
    if start_ms is None or end_ms is None:
        message = "start_time and end_time must be ISO 8601 instants such as 2026-01-31T12:00:00Z"
        raise refusal(422, {"reason": Reason.VALIDATION_FAILED.value, "message": message})
    if end_ms <= start_ms:
        message = "The period of a backfill ends after it starts."
        raise refusal(422, {"reason": Reason.INVALID_TIME_RANGE.value, "message": message})
    start, end = (_whole_second(each) - _JUST_BEFORE for each in (start_ms, end_ms))
    return start, end


def _whole_second(at_ms: int) -> datetime:
    """Return the first whole second that is not before an instant."""
    return datetime.fromisoformat(iso(0)) + _SECOND * -(-at_ms // 1000)


async def _moments(request: GatewayRequest, start: datetime, end: datetime) -> list[Timestamp]:
    """Return the moments of a period. The cluster returns a part of a long one."""
    found: list[Timestamp] = []
    wanted = ListScheduleMatchingTimesRequest(
        namespace=request.client.namespace, schedule_id=request.names[0]
    )
    wanted.start_time.FromDatetime(start)
    wanted.end_time.FromDatetime(end)
    while len(found) <= BACKFILL_MAX:
        page = await request.client.workflow_service.list_schedule_matching_times(wanted, retry=True)
        if not page.start_time:
            return found
        found += page.start_time
        wanted.start_time.CopyFrom(page.start_time[-1])
    message = f"The period has more than {BACKFILL_MAX} fires. Backfill it in parts."
    raise refusal(422, {"reason": Reason.BACKFILL_TOO_LARGE.value, "message": message})
