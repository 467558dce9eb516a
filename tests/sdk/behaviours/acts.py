"""Activities that the behaviours share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock import activity
from penstock.sdk.failures import ApplicationError
from tests.sdk.behaviours.scene import read, write


@activity.defn
async def echo(value: Any) -> Any:
    return value


@activity.defn
def add(left: int, right: int) -> int:
    return left + right


@activity.defn
async def pause(seconds: float, value: Any) -> Any:
    await asyncio.sleep(seconds)
    return value


@activity.defn
async def fail(message: str) -> None:
    raise ApplicationError(message, "details", 7, type="Broken", non_retryable=True)


@activity.defn
async def fail_until(attempt: int) -> int:
    if activity.info().attempt < attempt:
        raise RuntimeError(f"attempt {activity.info().attempt}")
    return attempt


@activity.defn
async def fail_always(message: str) -> None:
    raise RuntimeError(message)


@activity.defn
async def fail_with_cause() -> None:
    try:
        raise KeyError("deep")
    except KeyError as error:
        raise ValueError("shallow") from error


@activity.defn
async def hang() -> None:
    await asyncio.Event().wait()


@activity.defn
async def work_until_cancelled(note: str) -> None:
    """Send heartbeats until cancelled, and record the cancellation."""
    try:
        while True:
            activity.heartbeat("at work")
            if not read(note):
                write(note, "at work")
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        write(note, "cancelled")
        raise


@activity.defn
async def beat_then_resume(steps: int) -> list[Any]:
    """The first attempt sends heartbeats and fails; the next resumes from their details."""
    details = activity.info().heartbeat_details
    if not details:
        activity.heartbeat(steps)
        await asyncio.sleep(0.05)
        raise RuntimeError("half done")
    return list(details)


@activity.defn
async def jot(note: str, line: str) -> str:
    """Add a line to a note, once per activity however often it is retried."""
    lines = read(note).split()
    if line not in lines:
        write(note, " ".join([*lines, line]))
    return line


@activity.defn
async def about_me() -> dict[str, Any]:
    info = activity.info()
    priority = info.priority
    return {"priority_key": priority.priority_key, "fairness_key": priority.fairness_key}


ACTIVITIES: list[Callable[..., Any]] = [
    echo,
    add,
    pause,
    fail,
    fail_until,
    fail_always,
    fail_with_cause,
    hang,
    work_until_cancelled,
    beat_then_resume,
    jot,
    about_me,
]
