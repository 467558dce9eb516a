"""Bars of the part `peers`, drawn from a report: one picture for each measure that a reader asks for first.

Those of the part `profile` are drawn with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.layer_charts import draw_layers, kept_layers, layer_titles

Row = Mapping[str, Any]
WIDTH, LEFT, RIGHT, TOP = 800, 190, 150, 92
BAR, STEP = 20, 32
OURS = "penstock"


@dataclass(frozen=True, slots=True)
class Chart:
    file: str
    measure: str
    title: str
    unit: str
    is_better: str


CHARTS = (
    Chart("tasks", "tasks", "Standalone tasks end to end, one call each", "tasks per second", "more"),
    Chart("batches", "batches", "Standalone tasks end to end, 100 a call", "tasks per second", "more"),
    Chart("drain", "drain", "A backlog of tasks, one worker", "tasks per second", "more"),
    Chart("task-cpu", "task_cpu", "CPU for each standalone task, all processes", "milliseconds", "less"),
    Chart("latency", "result_p50", "Idle system: send to result, median", "milliseconds", "less"),
    Chart("workflows-1", "workflows_1", "Workflows of 1 activity", "workflows per second", "more"),
    Chart("workflows-5", "workflows_5", "Workflows of 5 activities", "workflows per second", "more"),
    Chart("first-task", "first_task", "Worker: process start to first task", "milliseconds", "less"),
    Chart("worker-memory", "worker_memory", "Worker: memory after its first task", "MiB, PSS", "less"),
)

STYLE = """
  svg { --ground: #ffffff; --edge: #d9dee5; --ink: #1c2430; --soft: #56606e; --ours: #2f6db3; --theirs: #a9b3c0;
        font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #151a22; --edge: #303946; --ink: #e9edf2; --soft: #a5b0be; --ours: #5a97dd; --theirs: #5d6877; }
  }
  .ground { fill: var(--ground); stroke: var(--edge) } .title { font-size: 17px; font-weight: 650; fill: var(--ink) }
  .ink { fill: var(--ink) } .soft { fill: var(--soft) } .end { text-anchor: end } .strong { font-weight: 650 }
  .ours { fill: var(--ours) } .theirs { fill: var(--theirs) } .spread { stroke: var(--ink); stroke-width: 1.5 }
"""


def draw(report: Row, folder: Path) -> list[Path]:
    """Every chart that the report has figures for."""
    figures = (report.get("peers") or {}).get("figures", ())
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for chart in CHARTS:
        rows = [row for row in figures if row["measure"] == chart.measure]
        if rows:
            path = folder / f"{chart.file}.svg"
            path.write_text(picture(chart, rows, _place(report)))
            drawn.append(path)
    return [*drawn, *draw_layers(report, folder)]


def titles() -> dict[str, str]:
    """Of every picture that may be drawn, by its file."""
    return {f"{chart.file}.svg": chart.title for chart in CHARTS} | layer_titles()


def kept(report: Row) -> dict[str, Any]:
    """As much of a report as its pictures are made of."""
    wanted = {chart.measure for chart in CHARTS}
    figures = [
        {name: row[name] for name in ("system", "measure", "value")}
        for row in (report.get("peers") or {}).get("figures", ())
        if row["measure"] in wanted
    ]
    return {
        "environment": report.get("environment"),
        "peers": {"figures": figures},
        "profile": {"rows": kept_layers(report)},
    }


def picture(chart: Chart, rows: Sequence[Row], place: str) -> str:
    """Bars from the best to the worst, ours in colour; a line over each bar is from the least to the most."""
    ordered = sorted(rows, key=lambda row: row["value"]["median"], reverse=chart.is_better == "more")
    height = TOP + STEP * len(ordered) + 34
    most = max(row["value"]["max"] for row in ordered) or 1.0
    told = "; ".join(f"{row['system']} {_written(row['value']['median'])}" for row in ordered)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        '     role="img" aria-labelledby="name what">',
        f'<title id="name">{escape(chart.title)}</title>',
        f'<desc id="what">{escape(f"{chart.unit}, {chart.is_better} is better: {told}.")}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        _text(24, 38, chart.title, "title"),
        _text(24, 62, f"{chart.unit}; {chart.is_better} is better", "soft"),
    ]
    for number, row in enumerate(ordered):
        lines += _bar(row, TOP + STEP * number, most)
    lines += [_text(24, height - 16, place, "soft"), "</svg>", ""]
    return "\n".join(lines)


def _bar(row: Row, y: int, most: float) -> Iterator[str]:
    value, is_ours = row["value"], row["system"].startswith(OURS)
    length = max(1.0, _length(value["median"], most))
    emphasis = " strong" if is_ours else ""
    yield _text(LEFT - 12, y + 15, row["system"], f"ink end{emphasis}")
    kind = "ours" if is_ours else "theirs"
    yield f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="3"/>'
    least, most_x = (LEFT + _length(value[name], most) for name in ("min", "max"))
    middle = y + BAR / 2
    yield f'<line class="spread" x1="{least:.1f}" x2="{most_x:.1f}" y1="{middle}" y2="{middle}"/>'
    yield _text(max(LEFT + length, most_x) + 8, y + 15, _written(value["median"]), f"ink{emphasis}")


def _length(value: float, most: float) -> float:
    return float((WIDTH - LEFT - RIGHT) * value / most)


def _written(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _place(report: Row) -> str:
    facts = report.get("environment") or {}
    told = [
        f"{facts[name]}{suffix}" for name, suffix in (("cores", " cores"), ("date", "")) if facts.get(name)
    ]
    return ", ".join(["median; the line is from the least to the most", *told])
