"""Draws the backlog of a queue: by priority, by fairness key with weights and shares, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.cli.limits.queue_config import draw_settings
from penstock.cli.limits.queue_rate import draw_rate
from penstock.cli.output.screen import Screen, ScreenCell, name, plain, status
from penstock.cli.output.times import span

_BAR_CHARACTERS = 10


def draw_backlog(screen: Screen, kind: str, counts: dict[str, Any]) -> None:
    """Draw one kind of task; empty and unlimited parts are omitted."""
    levels, keys = counts.get("backlog_by_priority") or [], counts.get("top_keys") or []
    if levels:
        screen.heading(f"Waiting {kind} tasks by priority{_order(counts)}")
        _draw_levels(screen, levels)
    if keys:
        screen.heading(f"Keys with the most waiting {kind} tasks")
        _draw_keys(screen, keys)
    draw_rate(screen, kind, counts.get("rate") or {})
    made = list((counts.get("settings") or {}).items())
    draw_settings(screen, made, f"Settings of {kind} tasks")


def _order(counts: dict[str, Any]) -> str:
    return " (keys share fairly)" if counts.get("fairness") else " (in order of arrival)"


def _draw_levels(screen: Screen, levels: Sequence[dict[str, Any]]) -> None:
    screen.rows(
        levels,
        "priority:name, tasks=backlog_count, keys=key_count, oldest=oldest_wait_seconds:span",
        oldest=lambda row: _waited(row.get("oldest_wait_seconds")),
    )


def _draw_keys(screen: Screen, keys: Sequence[dict[str, Any]]) -> None:
    screen.table(
        [
            "key",
            "priority",
            "tasks",
            "weight",
            "asks for",
            "got",
            "last minute",
            "oldest",
            "running",
            "state",
        ],
        [
            [
                name(row.get("fairness_key") or "(no key)"),
                plain(row.get("priority")),
                plain(row.get("backlog_count")),
                _weight(row),
                _share(row.get("share_asked")),
                _share(row.get("share_got")),
                plain(row.get("dispatches_last_minute")),
                _waited(row.get("oldest_wait_seconds")),
                plain(row.get("running")),
                _state(screen, row),
            ]
            for row in keys
        ],
    )


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


def _waited(seconds: object) -> ScreenCell:
    return ScreenCell(span(seconds)) if isinstance(seconds, int | float) else plain(None)


def _state(screen: Screen, row: dict[str, Any]) -> ScreenCell:
    cell = status(row.get("state"))
    opens = screen.when(row.get("open_at"))
    return ScreenCell(f"{cell.text}, opens {opens.text}", cell.style) if row.get("open_at") else cell
