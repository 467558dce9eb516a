"""Tracks open steps of a history, to show durations when they end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.cli.output.times import length, parsed

_OPENS = {
    "ActivityScheduled": "activity",
    "TimerScheduled": "timer",
    "ChildWorkflowScheduled": "child",
    "ConditionWaitOpened": "wait",
    "SignalWaitOpened": "wait",
    "UpdateAccepted": "update",
}
_ENDS = {
    "ActivityCompleted": ("activity", "took"),
    "ActivityFailed": ("activity", "took"),
    "ActivityTimedOut": ("activity", "ended after"),
    "ActivityCancelled": ("activity", "ended after"),
    "TimerFired": ("timer", "after"),
    "TimerCancelled": ("timer", "given up after"),
    "ChildRunCompleted": ("child", "took"),
    "ChildRunFailed": ("child", "took"),
    "ChildRunCancelled": ("child", "ended after"),
    "ChildRunTerminated": ("child", "ended after"),
    "ConditionWaitSatisfied": ("wait", "waited"),
    "ConditionWaitTimedOut": ("wait", "gave up after"),
    "UpdateCompleted": ("update", "took"),
}
_IDENTITIES = {"update": ("update_id",), "wait": ("condition_wait_id", "sequence")}

Key = tuple[str, object]


@dataclass(frozen=True, slots=True)
class _OpenStep:
    at: datetime | None
    attempts: int = 1


class StepDurations:
    """The open steps of one history."""

    def __init__(self) -> None:
        self._open: dict[Key, _OpenStep] = {}

    def record(self, kind: str, event: Mapping[str, Any]) -> str:
        """Take in the next event, and return how long the step took that ends with it ("" if none does)."""
        payload = event.get("payload")
        if not isinstance(payload, Mapping):
            return ""
        if kind in _OPENS:
            self._open[_key(_OPENS[kind], payload)] = _OpenStep(instant(event))
            return ""
        if kind == "ActivityRetryScheduled":
            self._count_attempt(_key("activity", payload))
            return ""
        if kind in _ENDS:
            family, phrase = _ENDS[kind]
            return self._ended(_key(family, payload), phrase, event, payload)
        return ""

    def _count_attempt(self, key: Key) -> None:
        known = self._open.get(key)
        if known is not None:
            self._open[key] = _OpenStep(known.at, known.attempts + 1)

    def _ended(self, key: Key, phrase: str, event: Mapping[str, Any], payload: Mapping[str, Any]) -> str:
        opening, at = self._open.pop(key, None), instant(event)
        if opening is None or opening.at is None or at is None:
            return ""
        text = f"{phrase} {length(max(0.0, (at - opening.at).total_seconds()))}"
        number = payload.get("attempt_number")
        attempts = max(opening.attempts, number if isinstance(number, int) else 1)
        return f"{text}, {attempts} attempts" if attempts > 1 else text


def instant(event: Mapping[str, Any]) -> datetime | None:
    """When an event was recorded."""
    return parsed(event.get("timestamp") or event.get("recorded_at"))


def _key(family: str, payload: Mapping[str, Any]) -> Key:
    fields = _IDENTITIES.get(family, ("sequence",))
    identity = next((payload[field] for field in fields if payload.get(field) is not None), None)
    return family, identity if isinstance(identity, str | int) else None
