"""Descriptions of schedules, outcomes of their fires, and previews."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.sdk.clients.descriptions import moment
from penstock.sdk.clients.schedules.schedule import Schedule
from penstock.sdk.clients.schedules.spec import Json
from penstock.sdk.converters import DataConverter
from penstock.sdk.search_attributes import GivenAttributes, TypedSearchAttributes, typed_attributes


@dataclass(frozen=True, slots=True)
class ScheduleActionExecutionStartWorkflow:
    """The run that a fire started."""

    workflow_id: str
    """The id of the workflow or of the standalone activity."""
    first_execution_run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleActionResult:
    """What became of one fire."""

    scheduled_at: datetime
    """The moment of the fire, without jitter and delay."""
    started_at: datetime | None
    """When it was recorded; None if it has only been planned."""
    action: ScheduleActionExecutionStartWorkflow | None
    """What it started, if it did."""
    outcome: str
    """started (the run is open), closed, buffered, skipped, failed or planned."""
    reason: str | None
    """Why it started nothing, or how its run closed."""
    trigger: str | None
    """What caused it: scheduled, manual or backfill."""

    @classmethod
    def read(cls, body: Json) -> ScheduleActionResult:
        """Read a fire of a response."""
        workflow_id = body.get("workflow_id")
        return cls(
            scheduled_at=datetime.fromisoformat(body["fire_time"]),
            started_at=moment(body.get("recorded_at")),
            action=None
            if workflow_id is None
            else ScheduleActionExecutionStartWorkflow(workflow_id, body.get("run_id")),
            outcome=body["outcome"],
            reason=body.get("reason"),
            trigger=body.get("trigger"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTriggerResult:
    """The outcome of a trigger."""

    outcome: str
    """triggered, buffered, buffer_full or skipped."""
    action: ScheduleActionExecutionStartWorkflow | None
    """What it started, if it did."""
    reason: str | None
    """Why it started nothing."""


@dataclass(frozen=True, slots=True)
class ScheduleWarning:
    """Something that the author of a schedule should know. Programs check `reason`; `message` is for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SchedulePreview:
    """What a specification would do."""

    next_action_times: Sequence[datetime]
    in_words: Sequence[str]
    """A sentence for each expression, interval and calendar."""
    warnings: Sequence[ScheduleWarning]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInfo:
    """How far a schedule has come."""

    num_actions: int
    """Fires that started a run."""
    num_actions_missed_catchup_window: int
    """Fires that came later than the catch-up window allows."""
    num_actions_skipped_overlap: int
    """Fires that started nothing because an earlier run was open."""
    num_actions_skipped: int
    """All fires that started nothing, missed ones included."""
    num_actions_failed: int
    """Runs that failed or timed out."""
    num_actions_running: int
    """Open runs."""
    num_actions_buffered: int
    """Fires that wait until the open runs have closed."""
    last_skip_reason: str | None
    running_actions: Sequence[ScheduleActionExecutionStartWorkflow]
    """Open runs of the latest fires. A list of schedules leaves them out."""
    recent_actions: Sequence[ScheduleActionResult]
    """The latest fires, newest first. A list of schedules leaves them out."""
    next_action_times: Sequence[datetime]
    """The next moments; in a list of schedules, the next one. None of a paused schedule."""
    in_words: Sequence[str]
    """The specification in sentences. A list of schedules leaves them out."""
    created_at: datetime
    last_updated_at: datetime
    zone_data_version: str | None
    """Version of the zone data from which the moments are computed."""

    @classmethod
    def read(cls, body: Json) -> ScheduleInfo:
        """Read a response that describes a schedule."""
        info = body["info"]
        recent = [ScheduleActionResult.read(each) for each in info.get("recent_actions") or ()]
        following = info.get("next_action_times") or ([body["next_fire"]] if body.get("next_fire") else [])
        return cls(
            num_actions=info["fires_count"],
            num_actions_missed_catchup_window=info["missed_catchup_window_count"],
            num_actions_skipped_overlap=info["skipped_overlap_count"],
            num_actions_skipped=info["skipped_trigger_count"],
            num_actions_failed=info["failures_count"],
            num_actions_running=info["running_count"],
            num_actions_buffered=info["buffered_count"],
            last_skip_reason=info.get("last_skip_reason"),
            running_actions=[each.action for each in recent if each.outcome == "started" and each.action],
            recent_actions=recent,
            next_action_times=[datetime.fromisoformat(each) for each in following],
            in_words=info.get("in_words") or (),
            created_at=datetime.fromisoformat(body["created_at"]),
            last_updated_at=datetime.fromisoformat(body["updated_at"]),
            zone_data_version=info.get("zone_data_version"),
        )


@dataclass(frozen=True, slots=True)
class ScheduleDescription:
    """A schedule as the server has it. Its `schedule` may be changed and returned by the function of an update."""

    id: str
    namespace: str
    schedule: Schedule
    info: ScheduleInfo
    version: int
    """Grows with each update. An update that was made from an older version is refused."""
    memo: Mapping[str, Any]
    search_attributes: Mapping[str, Any]
    raw: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole response, including fields without an attribute here."""

    @property
    def typed_search_attributes(self) -> TypedSearchAttributes:
        """The search attributes, to be read by their keys."""
        return typed_attributes(self.search_attributes)

    @classmethod
    def read(cls, body: Json, converter: DataConverter) -> ScheduleDescription:
        """Read a response that describes a schedule."""
        return cls(
            id=body["schedule_id"],
            namespace=body["namespace"],
            schedule=Schedule.read(body, converter),
            info=ScheduleInfo.read(body),
            version=body["version"],
            memo=body.get("memo") or {},
            search_attributes=body.get("search_attributes") or {},
            raw=body,
        )


@dataclass(frozen=True, slots=True)
class ScheduleBatchResult:
    """What pausing or resuming many schedules did."""

    matched: int = 0
    """Schedules that matched and were not in that state already."""
    acted: int = 0
    """Of these, those that were changed; none in a dry run."""
    failures: Sequence[Mapping[str, str]] = ()
    """The first schedules that could not be changed: `schedule_id`, `reason` and `message`."""

    def plus(self, body: Json) -> ScheduleBatchResult:
        """The sum of this and of one response."""
        return ScheduleBatchResult(
            self.matched + body["matched"],
            self.acted + body["acted"],
            (*self.failures, *(body.get("failures") or ())),
        )


@dataclass(frozen=True, slots=True)
class ScheduleUpdateInput:
    """What the function of an update receives."""

    description: ScheduleDescription


@dataclass(slots=True)
class ScheduleUpdate:
    """What the function of an update returns.

    Args:
        schedule: the schedule as it is to be.
        memo: the new memo; None keeps it.
        search_attributes: the new search attributes; None keeps them.
    """

    schedule: Schedule
    memo: Mapping[str, Any] | None = None
    search_attributes: GivenAttributes | None = None


def read_trigger(body: Json) -> ScheduleTriggerResult:
    """Read the response of a trigger."""
    workflow_id = body.get("workflow_id")
    started = workflow_id and ScheduleActionExecutionStartWorkflow(workflow_id, body.get("run_id"))
    return ScheduleTriggerResult(outcome=body["outcome"], action=started or None, reason=body.get("reason"))


def read_warnings(body: Json) -> tuple[ScheduleWarning, ...]:
    return tuple(ScheduleWarning(each["reason"], each["message"]) for each in body.get("warnings") or ())
