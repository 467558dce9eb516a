"""Draws the result of a simulation for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.simulator.comparison import (
    Calibration,
    Figure,
    KeyFigures,
    QueueFigures,
    SimulationResult,
    WaitFigures,
    wait_text,
)
from penstock.simulator.search.search import FoundChange

BLIND_SPOTS = "Not simulated: the time of polls and reports, durations that grow with load"
KEYS_SHOWN_MAX = 5


def draw(screen: Screen, result: SimulationResult) -> None:
    """Print the sentence, then a table per queue."""
    screen.line(ScreenCell(result.summary, "bold"))
    for warning in result.warnings:
        screen.line(ScreenCell(warning, "yellow"))
    before = {(each.queue, each.kind): each for each in result.base}
    for after in result.changed or result.base:
        base = before.get((after.queue, after.kind)) if result.changed else None
        _draw_queue(screen, base, after)
    screen.heading("Simulation")
    changes = ", ".join(result.changes) or "none"
    screen.line(ScreenCell(f"changes: {changes}"))
    screen.line(
        ScreenCell(
            f"{_counted(result.replications)} from seed {result.seed}; input {result.input_hash[:12]}",
            "dim",
        )
    )
    if result.calibration is None:
        screen.line(ScreenCell(f"{BLIND_SPOTS}, and tasks that are caused by the ends of others.", "dim"))
    else:
        _draw_calibration(screen, result.calibration)
        screen.line(
            ScreenCell(f"{BLIND_SPOTS}, and workflow tasks that wait for the worker with their run.", "dim")
        )


def _draw_calibration(screen: Screen, calibration: Calibration) -> None:
    """How the unchanged window was met, and how tasks arrive."""
    style = "green" if calibration.is_met else "red"
    for queue in calibration.queues:
        waits = [
            f"{each.key or 'no key'} {wait_text(each.recorded_p95_ms)} / {wait_text(each.replayed_p95_ms)}"
            for each in queue.keys[:KEYS_SHOWN_MAX]
        ]
        text = f"{queue.queue}: {queue.recorded_grants:,} grants recorded, {queue.replayed_grants:,} replayed"
        screen.line(ScreenCell(f"{text}; p95 waits {', '.join(waits)}" if waits else text, style))
    share = calibration.open_share * 100
    screen.line(
        ScreenCell(
            f"{share:.0f} % of the tasks arrive at recorded moments, the others after the ends that caused them"
        )
    )


def draw_answer(screen: Screen, answer: FoundChange) -> None:
    """Print what a search found, in words, before the result of that change."""
    screen.line(ScreenCell(answer.sentence, "bold green" if answer.is_met else "bold red"))
    trials = "1 trial" if answer.trials == 1 else f"{answer.trials} trials"
    screen.line(ScreenCell(trials, "dim"))


def _draw_queue(screen: Screen, before: QueueFigures | None, after: QueueFigures) -> None:
    kind = "" if after.kind == "activity" else f" ({after.kind} tasks)"
    screen.heading(f"{after.queue}{kind}")
    heads = ["key", "dispatched", "wait p50", "p90", "p99", "left waiting"]
    rows = [_row("all", before, after)]
    for key, figures in after.keys.items():
        if len(after.keys) > 1 or key:
            earlier = before.keys.get(key) if before else None
            rows.append(_row(key or "-", earlier, figures))
    screen.table(heads, rows)
    _draw_causes(screen, before, after)
    use = _percent(after.use_of_slots)
    was = f" (was {_percent(before.use_of_slots)})" if before else ""
    screen.line(ScreenCell(f"slots of workers in use: {use}{was}"))


def _row(
    title: str, before: QueueFigures | KeyFigures | None, after: QueueFigures | KeyFigures
) -> Sequence[ScreenCell]:
    quantiles = [_wait(before.waits if before else None, after.waits, each) for each in ("p50", "p90", "p99")]
    return [
        name(title),
        plain(f"{after.dispatched.median:,.0f}"),
        *quantiles,
        plain(f"{after.left_waiting.median:,.0f}"),
    ]


def _wait(before: WaitFigures | None, after: WaitFigures, quantile: str) -> ScreenCell:
    now: Figure = getattr(after, quantile)
    text = wait_text(now.median)
    if before is None:
        return ScreenCell(text)
    was: Figure = getattr(before, quantile)
    if wait_text(was.median) == text:
        return ScreenCell(text)
    return ScreenCell(f"{wait_text(was.median)} → {text}", "green" if now.median < was.median else "red")


def _draw_causes(screen: Screen, before: QueueFigures | None, after: QueueFigures) -> None:
    earlier = before.waiting_by_cause_s if before else {}
    causes = sorted(
        {*earlier, *after.waiting_by_cause_s},
        key=lambda each: -(after.waiting_by_cause_s.get(each, _NONE).median),
    )
    if not causes:
        return
    screen.table(
        ["waited for", "hours of tasks"],
        [
            [
                plain(cause),
                plain(_hours(earlier.get(cause) if before else None, after.waiting_by_cause_s.get(cause))),
            ]
            for cause in causes
        ],
    )


_NONE = Figure(0.0, 0.0, 0.0)


def _hours(before: Figure | None, after: Figure | None) -> str:
    now = f"{(after or _NONE).median / 3600:,.2f}"
    if before is None and after is not None:
        return now
    was = f"{(before or _NONE).median / 3600:,.2f}"
    return now if was == now else f"{was} → {now}"


def _percent(figure: Figure) -> str:
    return f"{figure.median * 100:.0f} %"


def _counted(replications: int) -> str:
    return "1 replication" if replications == 1 else f"{replications} replications"
