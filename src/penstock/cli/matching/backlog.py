"""Draws the backlog of a queue: by priority, by fairness key with weights and shares, and its limits."""

from __future__ import annotations

from typing import Any

from penstock.cli.limits.queue_config import draw_settings
from penstock.cli.limits.queue_rate import draw_rate
from penstock.cli.output.screen import Screen, ScreenCell, plain, status

_BAR_CHARACTERS = 10


def draw_backlog(screen: Screen, kind: str, counts: dict[str, Any]) -> None:
    """Draw one kind of task; empty and unlimited parts are omitted."""
    order = " (keys share fairly)" if counts.get("fairness") else " (in order of arrival)"
    screen.rows(
        counts.get("backlog_by_priority") or [],
        "priority:name, tasks=backlog_count, keys=key_count, oldest=oldest_wait_seconds:span",
        f"Waiting {kind} tasks by priority{order}",
    )
    screen.rows(
        counts.get("top_keys") or [],
        "key:name, priority, tasks=backlog_count, weight, asks for, got, last minute=dispatches_last_minute, "
        "oldest=oldest_wait_seconds:span, running, state",
        f"Keys with the most waiting {kind} tasks",
        key=lambda row: row.get("fairness_key") or "(no key)",
        weight=_weight,
        asks_for=lambda row: _share(row.get("share_asked")),
        got=lambda row: _share(row.get("share_got")),
        state=lambda row: _state(screen, row),
    )
    draw_rate(screen, kind, counts.get("rate") or {})
    made = list((counts.get("settings") or {}).items())
    draw_settings(screen, made, f"Settings of {kind} tasks")


def _weight(row: dict[str, Any]) -> ScreenCell:
    weight, source = row.get("weight"), row.get("weight_source")
    if not isinstance(weight, int | float):
        return plain(None)
    return ScreenCell(f"{weight:g} ({source})" if source == "override" else f"{weight:g}")


def _share(share: object) -> ScreenCell:
    """A part of a whole, as a bar and in percent."""
    if not isinstance(share, int | float):
        return plain(None)
    full = round(min(max(share, 0), 1) * _BAR_CHARACTERS)
    return ScreenCell(f"{'#' * full}{'.' * (_BAR_CHARACTERS - full)} {share:.1%}")


def _state(screen: Screen, row: dict[str, Any]) -> ScreenCell:
    cell = status(row.get("state"))
    opens = screen.when(row.get("open_at"))
    return ScreenCell(f"{cell.text}, opens {opens.text}", cell.style) if row.get("open_at") else cell
