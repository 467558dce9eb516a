"""A schedule: what it starts, when, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from penstock.dispatch import DispatchConfig
from penstock.sdk.clients.schedules.actions import ScheduleAction, read_action
from penstock.sdk.clients.schedules.spec import Json, ScheduleSpec, instant, whole_seconds
from penstock.sdk.converters import DataConverter


class ScheduleOverlapPolicy(StrEnum):
    """What happens to a fire while runs that the schedule started are open."""

    SKIP = "skip"
    """It starts nothing."""
    BUFFER_ONE = "buffer_one"
    """It starts when they have closed; at most one fire waits."""
    BUFFER_ALL = "buffer_all"
    """It starts when they have closed; up to 1,000 fires wait and start one after the other."""
    CANCEL_OTHER = "cancel_other"
    """They are cancelled, and it starts when they have closed."""
    TERMINATE_OTHER = "terminate_other"
    """They are terminated, and it starts at once."""
    ALLOW_ALL = "allow_all"
    """It starts beside them."""


@dataclass(slots=True)
class SchedulePolicy:
    """How the fires of a schedule are carried out.

    Args:
        overlap: what happens to a fire while earlier runs are open.
        catchup_window: a fire that is later than this, because no server was running, is recorded as missed and
            starts nothing; 10 seconds to 365 days.
        pause_on_failure: pause the schedule when a run that it started fails or times out.
        start_by: a fire that could not start so long after its moment is dropped, in whole seconds.
    """

    overlap: ScheduleOverlapPolicy = ScheduleOverlapPolicy.SKIP
    catchup_window: timedelta = timedelta(hours=1)
    pause_on_failure: bool = False
    start_by: timedelta | None = None


@dataclass(slots=True)
class ScheduleState:
    """The state of a schedule that its owner sets.

    Args:
        note: text for people.
        paused: whether it is paused.
        limited_actions: whether it ends, and is deleted, after `remaining_actions` starts.
        remaining_actions: starts that are left; ignored unless `limited_actions`.
    """

    note: str | None = None
    paused: bool = False
    limited_actions: bool = False
    remaining_actions: int = 0


@dataclass(slots=True)
class Schedule:
    """A schedule.

    Args:
        action: what each fire starts: `ScheduleActionStartWorkflow` or `ScheduleActionStartActivity`.
        spec: when it fires.
        policy: overlap, catch-up and failures.
        state: note, pause and the number of starts.
    """

    action: ScheduleAction
    spec: ScheduleSpec
    policy: SchedulePolicy = field(default_factory=SchedulePolicy)
    state: ScheduleState = field(default_factory=ScheduleState)

    def on_the_wire(self, converter: DataConverter, config: DispatchConfig | None, fires: int = 0) -> Json:
        """The fields of a request, without the pause.

        Args:
            converter: encodes the arguments of the action.
            config: dispatch configuration that supplies options of an activity.
            fires: starts so far.
        """
        policy, state = self.policy, self.state
        body: Json = {
            "spec": self.spec.on_the_wire(),
            "action": self.action.on_the_wire(converter, config),
            "overlap_policy": ScheduleOverlapPolicy(policy.overlap).value,
            "jitter_seconds": self.spec.jitter_seconds,
            "catchup_window_seconds": whole_seconds(policy.catchup_window, "catchup_window"),
            "pause_on_failure": policy.pause_on_failure,
            "start_by_seconds": None
            if policy.start_by is None
            else whole_seconds(policy.start_by, "start_by"),
            "note": state.note,
            "max_runs": fires + state.remaining_actions if state.limited_actions else None,
        }
        return {name: value for name, value in body.items() if value is not None}

    @classmethod
    def read(cls, body: Mapping[str, Any], converter: DataConverter) -> Schedule:
        """Read a response that describes a schedule."""
        start_by = body.get("start_by_seconds")
        return cls(
            action=read_action(body["action"], converter),
            spec=ScheduleSpec.read(body["spec"], body.get("jitter_seconds")),
            policy=SchedulePolicy(
                overlap=ScheduleOverlapPolicy(body["overlap_policy"]),
                catchup_window=timedelta(seconds=body["catchup_window_seconds"]),
                pause_on_failure=body["pause_on_failure"],
                start_by=None if start_by is None else timedelta(seconds=start_by),
            ),
            state=ScheduleState(
                note=body.get("note"),
                paused=body["paused"],
                limited_actions=body.get("max_runs") is not None,
                remaining_actions=body.get("remaining_actions") or 0,
            ),
        )


@dataclass(frozen=True, slots=True)
class ScheduleBackfill:
    """A period whose moments are fired now.

    Args:
        start_at: the first moment that is fired.
        end_at: the end of the period, which is not part of it.
        overlap: overlap policy for these fires; None is that of the schedule.
    """

    start_at: datetime
    end_at: datetime
    overlap: ScheduleOverlapPolicy | None = None

    def on_the_wire(self) -> Json:
        found: Json = {
            "start_time": instant(self.start_at, "start_at"),
            "end_time": instant(self.end_at, "end_at"),
        }
        return found | overlap_field(self.overlap)


def overlap_field(overlap: ScheduleOverlapPolicy | None) -> Json:
    return {} if overlap is None else {"overlap_policy": ScheduleOverlapPolicy(overlap).value}


_EMPTY: Final[Mapping[str, Any]] = {"note": "", "memo": {}, "search_attributes": {}}
"""What unsets a field. The server keeps a field that is absent or null."""


class UnsetFieldError(ValueError):
    """An update unsets a field that the server can only change."""


def changes(before: Json, after: Json, where: str = "") -> Json:
    """The fields of an update that turns one schedule into another.

    Raises:
        UnsetFieldError: a field was unset that the server only changes. A new schedule is needed then.
    """
    found = {name: value for name, value in after.items() if before.get(name) != value}
    for name in before.keys() - after.keys():
        if name not in _EMPTY:
            raise UnsetFieldError(
                f"{where}{name} cannot be unset by an update: give it a value, or delete the schedule and create"
                " another one"
            )
        found[name] = _EMPTY[name]
    if "action" in found and not where and _kind(before["action"]) == _kind(after["action"]):
        found["action"] = changes(before["action"], after["action"], "action.")
    return found


def _kind(action: Json) -> bool:
    return "activity_type" in action
