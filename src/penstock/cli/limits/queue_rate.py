"""The dispatch rate of a queue: set it, and show which source is in force."""

from __future__ import annotations

from typing import Any

from penstock.cli.inputs import given
from penstock.cli.limits.queue_config import draw_config, rate
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, ScreenCell
from penstock.cli.transport.session import CliSession

_SOURCES = {
    "operator": "set by the operator",
    "worker": "conveyed by its workers",
    "system": "the most of any queue",
}


def set_rate(session: CliSession, queue: str, limit: Any, burst: Any, reason: str | None) -> None:
    """Set the rate of a queue, or leave it to its workers again."""
    body = given(
        task_queue_type="activity", queue_rps_limit=limit, queue_rps_burst_seconds=burst, reason=reason
    )
    answer = session.connect().patch("task-queues", queue, "config", body=body)
    echo_err(_rate_message(queue, answer.body.get("effective") or {}))
    session.show(answer, draw_config)


def _rate_message(queue: str, effective: dict[str, Any]) -> str:
    limit, source = effective.get("queue_rps_limit"), str(effective.get("queue_rps_limit_source"))
    if limit is None:
        return f"Nothing limits how fast {queue} gives out activities."
    if limit == 0:
        return f"{queue} gives out no activities until its rate is set again."
    return f"{queue} gives out at most {rate(limit)}, {_SOURCES.get(source, source)}."


def draw_rate(screen: Screen, kind: str, body: dict[str, Any]) -> None:
    """Draw the rate of a queue, and beside it what its workers take by themselves; nothing where neither is limited."""
    caps = body.get("worker_caps") or {}
    if body.get("limit") is None and not caps.get("capped_workers"):
        return
    screen.heading(f"Rate of {kind} tasks")
    rows = [
        ("Limit", _limit(body)),
        ("Burst", _burst(body)),
        ("Next dispatch", screen.when(body.get("next_dispatch_at"))),
        ("Workers say", _reported_by_workers(screen, body.get("worker"))),
        ("System", _system(body)),
        ("Own caps", _caps(caps)),
        ("Conflict", _conflict(screen, body.get("conflict"))),
    ]
    screen.facts([(label, cell) for label, cell in rows if cell is not None])


def _limit(body: dict[str, Any]) -> ScreenCell:
    limit, source = body.get("limit"), str(body.get("source"))
    if limit is None:
        return ScreenCell("none for all workers together", "dim")
    closed = "red" if limit == 0 else ""
    return ScreenCell(f"{rate(limit)} ({_SOURCES.get(source, source)}), for all workers together", closed)


def _burst(body: dict[str, Any]) -> ScreenCell | None:
    seconds = body.get("burst_seconds")
    return ScreenCell(f"{seconds:g} s") if isinstance(seconds, int | float) else None


def _reported_by_workers(screen: Screen, reported: Any) -> ScreenCell | None:
    if not isinstance(reported, dict):
        return None
    lapses = f", lapses {screen.when(reported['lapses_at']).text}" if reported.get("lapses_at") else ""
    return ScreenCell(f"{rate(reported['value'])} (last {reported.get('worker_id')}{lapses})")


def _system(body: dict[str, Any]) -> ScreenCell | None:
    most = body.get("system")
    return None if most is None else ScreenCell(f"{rate(most)} at most")


def _caps(caps: dict[str, Any]) -> ScreenCell | None:
    """The rate limits of the workers themselves, compared with that of the queue."""
    capped, free = caps.get("capped_workers") or 0, caps.get("uncapped_workers") or 0
    if not capped:
        return ScreenCell("none: each worker takes what the queue gives it", "dim") if free else None
    if free:
        whose = "its" if capped == 1 else "their"
        return ScreenCell(
            f"{_workers(capped)} with a cap of {whose} own, {free} without: no bound on all together"
        )
    together = f"{rate(caps['limit'])} together ({_workers(capped)})"
    if caps.get("tighter") == "workers":
        return ScreenCell(f"{together}: tighter than the queue's limit, which is never reached", "yellow")
    return ScreenCell(f"{together}: the queue's limit is reached first")


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _conflict(screen: Screen, conflict: Any) -> ScreenCell | None:
    if not isinstance(conflict, dict):
        return None
    sides = [f"{each['worker_id']} wants {rate(each['value'])}" for each in conflict.get("workers") or []]
    since = screen.when(conflict.get("since")).text
    return ScreenCell(
        f"{' and '.join(sides)}, since {since}: give all workers one rate, or set it here", "red"
    )
