"""Progress of an activity: its summary and the details of its last heartbeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.cli.output.payload_text import opened
from penstock.cli.output.screen import Screen
from penstock.cli.timeline.payloads import in_short


def heartbeat_text(heartbeat: object) -> str | None:
    """The last heartbeat on one line: `40 of 100 rows, copying, details [7]`."""
    if not isinstance(heartbeat, Mapping):
        return None
    parts: list[str] = []
    if heartbeat.get("current") is not None:
        of = "" if heartbeat.get("total") is None else f" of {heartbeat['total']}"
        unit = f" {heartbeat['unit']}" if heartbeat.get("unit") else ""
        parts.append(f"{heartbeat['current']}{of}{unit}")
    if heartbeat.get("message"):
        parts.append(str(heartbeat["message"]))
    if heartbeat.get("details") is not None:
        details = opened(heartbeat["details"])
        only = isinstance(details, list) and len(details) == 1
        parts.append(in_short(details[0] if only else details))
    if heartbeat.get("left_out"):
        parts.append(f"{heartbeat['left_out']}, too long to be shown here")
    return ", ".join(parts) or None


def draw_open_activities(screen: Screen, described: Mapping[str, Any]) -> None:
    """Draw the activities that a run waits for; nothing if there are none."""
    rows: Sequence[dict[str, Any]] = described.get("pending_activities") or []
    screen.rows(
        rows,
        "activity=activity_type:name, status:status, summary, attempts=attempt_count, "
        "heartbeat=last_heartbeat_at:when, details",
        "Open activities",
        details=lambda each: heartbeat_text(each.get("last_heartbeat")),
    )
