"""The activities of the flows. They run in the process of the test, which may block them at gates."""

from __future__ import annotations

import asyncio
from typing import Any

from durable_workflow import NonRetryableError, activity
from durable_workflow.errors import ActivityCancelled

from tests.acceptance.sdk.flow_gates import COUNTS, GATES, NOTES

BEAT_SECONDS = 0.05


@activity.defn(name="echo")
async def echo(value: Any) -> Any:
    return value


@activity.defn(name="note")
async def note(tag: str, what: str) -> str:
    NOTES[tag].append(what)
    return what


@activity.defn(name="fail")
async def fail(message: str) -> None:
    raise NonRetryableError(message)


@activity.defn(name="gated")
async def gated(gate: str, value: Any) -> Any:
    await GATES[gate].passed()
    return value


@activity.defn(name="gated_failure")
async def gated_failure(gate: str, message: str) -> None:
    await GATES[gate].passed()
    raise NonRetryableError(message)


@activity.defn(name="count")
async def count(tag: str) -> int:
    """How often it was called with this tag."""
    COUNTS[tag] += 1
    return COUNTS[tag]


@activity.defn(name="third_time")
async def third_time(tag: str) -> int:
    """Fails twice."""
    COUNTS[tag] += 1
    if COUNTS[tag] < 3:
        raise ValueError(f"not yet: {COUNTS[tag]}")
    return COUNTS[tag]


@activity.defn(name="beating")
async def beating(gate: str) -> str:
    """Heartbeats until it is told to stop, and notes that it was."""
    GATES[gate].announce()
    try:
        while True:
            await activity.context().heartbeat({"still": "here"})
            await asyncio.sleep(BEAT_SECONDS)
    except ActivityCancelled:
        GATES[f"{gate}-cancelled"].announce()
        raise


ACTIVITIES = (echo, note, fail, gated, gated_failure, count, third_time, beating)
