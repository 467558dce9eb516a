"""The dispatch of a scheduled activity: queue, routing key, and the layer of each option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.cli.output.times import setting

_CLOCKS = ("start_to_close", "schedule_to_close", "schedule_to_start", "heartbeat")
_RETRY = {"retry.maximum_attempts": "max_attempts", "retry.non_retryable": "non_retryable_error_types"}
_SHOWN = ("task_queue", *(f"{clock}_timeout" for clock in _CLOCKS), *_RETRY)
"""The event has the other values of a policy only as the pauses that follow from them."""
FINGERPRINT_CHARS = 12


def dispatch_facts(payload: Mapping[str, Any]) -> Iterator[str]:
    """For the line of the event: the key, the queue that was chosen, and what had to be cut."""
    if (key := payload.get("routing_key")) is not None:
        yield f"key {key}"
    if _sources(payload) and payload.get("task_queue"):
        yield f"to {payload['task_queue']}"
    for clock, asked_s, left_s in _cuts(payload):
        yield f"{clock} {setting(asked_s)} cut to {setting(left_s)}"


def dispatch_lines(payload: Mapping[str, Any]) -> Iterator[str]:
    """Lines below the event: each value with its layer, and the configuration's fingerprint."""
    sources = _sources(payload)
    for name in _SHOWN:
        value = _value(payload, name)
        if name in sources and value is not None:
            yield f"{name} {value} ({sources[name]})"
    fingerprint = (payload.get("dispatch") or {}).get("fingerprint")
    if fingerprint:
        yield f"by the dispatch configuration {str(fingerprint)[:FINGERPRINT_CHARS]}"


def _sources(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    dispatch = payload.get("dispatch")
    found = dispatch.get("sources") if isinstance(dispatch, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _value(payload: Mapping[str, Any], name: str) -> object | None:
    """The effective value."""
    if name == "task_queue":
        return payload.get("task_queue")
    policy = _policy(payload)
    if name in _RETRY:
        value = policy.get(_RETRY[name])
        return ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
    seconds = _seconds(policy, name)
    return None if seconds is None else setting(seconds)


def _cuts(payload: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    asked = payload.get("asked_timeouts")
    if not isinstance(asked, Mapping):
        return
    for clock in _CLOCKS:
        was, now = asked.get(f"{clock}_timeout_ms"), _seconds(_policy(payload), f"{clock}_timeout")
        if isinstance(was, int) and now is not None:
            yield clock, was / 1000, now


def _policy(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    activity = payload.get("activity")
    policy = activity.get("retry_policy") if isinstance(activity, Mapping) else None
    return policy if isinstance(policy, Mapping) else {}


def _seconds(policy: Mapping[str, Any], name: str) -> float | None:
    finer, whole = policy.get(f"{name}_ms"), policy.get(name)
    if isinstance(finer, int):
        return finer / 1000
    return whole if isinstance(whole, int) else None
