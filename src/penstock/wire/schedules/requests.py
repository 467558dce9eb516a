"""Requests about schedules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from penstock.core import identifiers
from penstock.core.schedules.cron import EXPRESSION_MAX
from penstock.core.schedules.record import CATCHUP_S_MAX, CATCHUP_S_MIN, SCHEDULE_ID_MAX
from penstock.core.schedules.spec import EXPRESSIONS_MAX, JITTER_MS_MAX
from penstock.core.schedules.spec_text import DURATION_MAX
from penstock.wire.fields import INT_MAX, NO_NUL, Cost, Milliseconds, Name, Object, Seconds, Text1000
from penstock.wire.requests import Dispatch, RequestModel, RetryPolicy, WithUniqueKey
from penstock.wire.visibility.searches import PageToken, QueryText

BATCH_SCHEDULES_MAX = 500
ScheduleId = Annotated[
    str, Meta(min_length=1, max_length=SCHEDULE_ID_MAX, pattern=identifiers.WORKFLOW_ID.pattern)
]
OverlapPolicy = Literal["skip", "buffer_one", "buffer_all", "cancel_other", "terminate_other", "allow_all"]
Instant = Annotated[str, Meta(max_length=40, pattern=NO_NUL)]
Duration = Annotated[str, Meta(max_length=DURATION_MAX, pattern=NO_NUL)]
Jitter = Annotated[int, Meta(ge=0, le=JITTER_MS_MAX // 1000)]
Catchup = Annotated[int, Meta(ge=CATCHUP_S_MIN, le=CATCHUP_S_MAX)]
MaxRuns = Annotated[int, Meta(ge=1, le=INT_MAX)]
Entries = Meta(max_length=EXPRESSIONS_MAX)


class IntervalBody(RequestModel):
    """A fixed distance since the epoch, as ISO 8601 durations such as PT30M."""

    every: Duration
    offset: Duration | None = None


class RangeBody(RequestModel):
    """The numbers from `start` to `end`, every `step`-th; `end` is `start` by default."""

    start: int
    end: int | None = None
    step: int | None = None


Numbers = Annotated[list[int | RangeBody], Meta(max_length=60)]


class CalendarBody(RequestModel):
    """Numbers for each field; a time matches if all of its fields do. Sunday is 0.

    Seconds, minutes and hours are 0 by default, the other fields any value.
    """

    second: Numbers | None = None
    minute: Numbers | None = None
    hour: Numbers | None = None
    day_of_month: Numbers | None = None
    month: Numbers | None = None
    day_of_week: Numbers | None = None
    year: Numbers | None = None
    comment: Text1000 | None = None


class SpecBody(RequestModel):
    """When a schedule fires: the union of its expressions, calendars and intervals, without `skip`."""

    cron_expressions: Annotated[list[Annotated[str, Meta(max_length=EXPRESSION_MAX)]], Entries] | None = None
    intervals: Annotated[list[IntervalBody], Entries] | None = None
    calendars: Annotated[list[CalendarBody], Entries] | None = None
    skip: Annotated[list[CalendarBody], Entries] | None = None
    timezone: Name | None = None
    """The IANA name of a time zone; UTC by default."""
    start_at: Instant | None = None
    end_at: Instant | None = None
    gap: Literal["shift", "skip"] | None = None
    """What happens to a time of day that a clock change leaves out: it fires right after (default), or not."""
    repeat: Literal["first", "last", "both"] | None = None
    """Which occurrence of a time of day fires that a clock change repeats; the first by default."""


class ActionBody(WithUniqueKey, kw_only=True):
    """What each fire starts: a workflow, or a standalone activity if `activity_type` is given."""

    workflow_type: Name | None = None
    activity_type: Name | None = None
    task_queue: Name | None = None
    input: Any = None
    business_key: Name | None = None
    memo: Object | None = None
    search_attributes: Object | None = None
    execution_timeout_seconds: Seconds | None = None
    run_timeout_seconds: Seconds | None = None
    workflow_execution_timeout: Seconds | None = None
    workflow_run_timeout: Seconds | None = None
    """The same two timeouts under other names of the contract."""
    build_id: Name | None = None
    deliver_cancel: bool | None = None
    retry_policy: RetryPolicy | None = None
    start_to_close_timeout_seconds: Seconds | None = None
    schedule_to_start_timeout_seconds: Seconds | None = None
    schedule_to_close_timeout_seconds: Seconds | None = None
    heartbeat_timeout_seconds: Seconds | None = None
    start_to_close_timeout_ms: Milliseconds | None = None
    schedule_to_start_timeout_ms: Milliseconds | None = None
    schedule_to_close_timeout_ms: Milliseconds | None = None
    heartbeat_timeout_ms: Milliseconds | None = None
    cost_estimate: Cost | None = None
    on_lost_lease: Literal["redeliver", "fail"] | None = None
    routing_key: Text1000 | None = None
    dispatch: Dispatch | None = None


class WithSchedulePolicies(RequestModel, kw_only=True):
    overlap_policy: OverlapPolicy | None = None
    jitter_seconds: Jitter | None = None
    max_runs: MaxRuns | None = None
    catchup_window_seconds: Catchup | None = None
    """A fire that is later than this is recorded as missed; one hour by default."""
    pause_on_failure: bool | None = None
    start_by_seconds: Seconds | None = None
    """A fire that could not start so long after its moment is dropped."""
    memo: Object | None = None
    search_attributes: Object | None = None
    note: Text1000 | None = None


class CreateSchedule(WithSchedulePolicies, kw_only=True):
    schedule_id: ScheduleId | None = None
    spec: SpecBody
    action: ActionBody
    paused: bool | None = None


class UpdateSchedule(WithSchedulePolicies, kw_only=True):
    """Fields that are absent or null stay as they are; the action is merged key by key."""

    if_version: Annotated[int, Meta(ge=1, le=INT_MAX)] | None = None
    """The version that was read; if the schedule was updated since, the change is refused with what moved."""
    spec: SpecBody | None = None
    action: ActionBody | None = None


class NoteSchedule(RequestModel):
    note: Text1000 | None = None


class TriggerSchedule(RequestModel):
    overlap_policy: OverlapPolicy | None = None


class BackfillSchedule(RequestModel):
    start_time: Instant
    end_time: Instant
    overlap_policy: OverlapPolicy | None = None
    dry_run: bool | None = None
    """Only list the moments."""


class PreviewSchedule(RequestModel):
    spec: SpecBody
    jitter_seconds: Jitter | None = None
    count: Annotated[int, Meta(ge=1, le=100)] = 10
    after: Instant | None = None
    """Now by default."""


class ListSchedules(RequestModel):
    status: Literal["active", "paused"] | None = None
    workflow_type: Name | None = None
    query: QueryText | None = None
    page_size: Annotated[int, Meta(ge=1, le=200)] = 50
    next_page_token: PageToken | None = None


class BatchSchedules(RequestModel, forbid_unknown_fields=True):
    """A pause or resume of all schedules that a query finds.

    Unknown fields are errors: a misspelt filter would select too many schedules.
    """

    operation: Literal["pause", "resume"]
    query: QueryText
    note: Text1000 | None = None
    dry_run: bool | None = None
    max_schedules: Annotated[int, Meta(ge=1, le=BATCH_SCHEDULES_MAX)] | None = None
    token: PageToken | None = None
    """`next_token` of the previous response, to continue from there."""


class ReadScheduleHistory(RequestModel):
    limit: int = 100
    after_sequence: Annotated[str, Meta(max_length=40)] | None = None
