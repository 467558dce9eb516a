"""Draws the forecast of a backlog for a terminal."""

from __future__ import annotations

from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.simulator.comparison import wait_text
from penstock.simulator.live.forecast import Forecast, QueueForecast

BLIND_SPOTS = (
    "Not known: which types wait, how durations differ between tasks, what arrivals will do; arrivals and durations "
    "are those of the last minutes. Polls and reports take no time, and durations do not grow with load."
)


def draw_forecast(screen: Screen, forecast: Forecast) -> None:
    """Print the sentence, then a table of queues and one of keys."""
    screen.line(ScreenCell(forecast.summary, "bold"))
    for note in forecast.notes:
        screen.line(ScreenCell(note, "yellow"))
    before = {(each.queue, each.kind): each for each in forecast.base}
    for each in forecast.changed or forecast.base:
        _draw_queue(screen, before[each.queue, each.kind] if forecast.changed else None, each)
    screen.heading("Forecast")
    screen.line(ScreenCell(f"changes: {', '.join(forecast.changes) or 'none'}"))
    how = "task by task" if forecast.is_exact else "on a smaller load of the same shape"
    screen.line(
        ScreenCell(f"as of {forecast.as_of}, simulated {how}; input {forecast.input_hash[:12]}", "dim")
    )
    screen.line(ScreenCell(BLIND_SPOTS, "dim"))


def _draw_queue(screen: Screen, before: QueueForecast | None, each: QueueForecast) -> None:
    kind = "" if each.kind == "activity" else f" ({each.kind} tasks)"
    screen.heading(f"{each.queue}{kind}")
    most = "-" if each.most_per_minute is None else f"{each.most_per_minute:,.4g}"
    counts = (f"{each.waiting:,}", f"{each.delayed:,}", f"{each.running:,}")
    screen.table(
        ["waiting", "retries", "running", "arrive a minute", "allowed a minute", "a task takes"],
        [
            [
                *map(plain, counts),
                plain(f"{each.arriving_per_minute:,.4g}"),
                plain(most),
                plain(wait_text(each.mean_ms)),
            ]
        ],
    )
    if not each.keys:
        return
    rows = []
    for key, gone in each.keys.items():
        now = str(gone)
        was = str(before.keys[key]) if before is not None and key in before.keys else now
        rows.append([name(key or "-"), plain(now if was == now else f"{was} → {now}")])
    screen.table(["key", "its backlog is gone after"], rows)
