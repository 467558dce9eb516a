"""Plots of simulations as SVG: waiting over time, the distribution of waits, and what tasks waited for.

The first replication is drawn: dashed as the workload is, solid with the changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from penstock.simulator.comparison import wait_text
from penstock.simulator.measures import Measures, QueueMeasures, QueueName, quantile

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 40
COLOURS = ("#0f7b83", "#b45309", "#6d28d9", "#15803d", "#be123c", "#1d4ed8", "#57534e", "#a16207")
Points = Sequence[tuple[float, float]]
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#44403c}.title{font-size:14px;font-weight:600}"
    ".axis{stroke:#a8a29e}.grid{stroke:#e7e5e4}path{fill:none;stroke-width:2}.was{stroke-dasharray:5 4;opacity:.7}"
    "@media(prefers-color-scheme:dark){text{fill:#d6d3d1}.grid{stroke:#44403c}}"
)


def write_charts(folder: Path, runs: Sequence[Sequence[Measures]]) -> Iterator[Path]:
    """Write the plots of all queues; returns their paths.

    Args:
        folder: created if it is missing.
        runs: the replications as they are, and those with the changes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    firsts = [replications[0] for replications in runs]
    for name in sorted(firsts[0].queues, key=lambda each: (each[0], each[1].value)):
        queues = [each.queue(name) for each in firsts]
        for what, text in (
            ("waiting", waiting_chart(name, queues)),
            ("waits", waits_chart(name, queues)),
            ("causes", causes_chart(name, queues)),
        ):
            path = folder / f"{_file_name(name)}-{what}.svg"
            path.write_text(text, encoding="utf-8")
            yield path


def waiting_chart(name: QueueName, queues: Sequence[QueueMeasures]) -> str:
    """Tasks that wait, over time: of each key if there are few, else of the queue."""
    series: list[tuple[str, int, bool, Points]] = []
    for queue, is_change in _with_flags(queues):
        keys = queue.samples_by_key if 1 < len(queue.keys) <= len(COLOURS) else {}
        lines = keys or {"all": [waiting for _, waiting, _ in queue.samples]}
        for number, (key, values) in enumerate(lines.items()):
            times = [at_ms for at_ms, *_ in queue.samples]
            series.append((key or "no key", number, is_change, list(zip(times, values, strict=True))))
    return _line_chart(f"Waiting tasks in {name[0]}", series, wait_text, lambda value: f"{value:,.0f}")


def waits_chart(name: QueueName, queues: Sequence[QueueMeasures]) -> str:
    """How long tasks wait: the share of tasks that wait at most as long."""
    series = [
        (
            "changed" if is_change else "as it is",
            int(is_change),
            is_change or len(queues) == 1,
            _quantiles(queue),
        )
        for queue, is_change in _with_flags(queues)
    ]
    return _line_chart(
        f"Share of tasks in {name[0]} by wait", series, lambda value: f"{value:.0f} %", wait_text
    )


def _quantiles(queue: QueueMeasures) -> Points:
    waits = queue.waits()
    return [(share, quantile(waits, share / 100)) for share in (*range(99), 99, 99.5, 99.9)]


def causes_chart(name: QueueName, queues: Sequence[QueueMeasures]) -> str:
    """Hours of waiting by cause, as one bar before and one after."""
    causes = sorted({cause for queue in queues for cause in queue.waiting_by_cause})
    most = max((sum(queue.waiting_by_cause.values()) for queue in queues), default=0) or 1
    parts = [_text(LEFT, 24, f"What tasks in {name[0]} waited for, in hours of tasks", "title")]
    for row, (queue, is_change) in enumerate(_with_flags(queues)):
        y, x = 60 + row * 50, float(LEFT + 20)
        parts.append(_text(8, y + 20, "changed" if is_change else "as it is"))
        for number, cause in enumerate(causes):
            width = (WIDTH - LEFT - 120) * queue.waiting_by_cause[cause] / most
            if width:
                colour = COLOURS[number % len(COLOURS)]
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="30" fill="{colour}"/>')
                x += width
        parts.append(_text(x + 6, y + 20, f"{sum(queue.waiting_by_cause.values()) / 3_600_000:,.2f}"))
    for number, cause in enumerate(causes):
        y = 60 + len(queues) * 50 + 20 * number
        parts.append(
            f'<rect x="{LEFT + 20}" y="{y}" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>'
        )
        parts.append(_text(LEFT + 40, y + 11, cause.value))
    return _svg(parts, 80 + len(queues) * 50 + 20 * len(causes))


def _line_chart(
    title: str, series: Sequence[tuple[str, int, bool, Points]], x_text: object, y_text: object
) -> str:
    assert callable(x_text), "formats values of the horizontal axis"
    assert callable(y_text), "formats values of the vertical axis"
    points = [point for *_, line in series for point in line]
    x_most = max((x for x, _ in points), default=0) or 1
    y_most = max((y for _, y in points), default=0) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + across * x / x_most, HEIGHT - BOTTOM - up * y / y_most

    parts = [_text(LEFT, 24, title, "title")]
    for step in range(5):
        x, y = place(x_most * step / 4, y_most * step / 4)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, y_text(y_most * step / 4), anchor="end"))
        parts.append(_text(x, HEIGHT - BOTTOM + 18, x_text(x_most * step / 4), anchor="middle"))
    named: set[str] = set()
    for label, number, is_solid, line in series:
        colour, style = COLOURS[number % len(COLOURS)], "" if is_solid else ' class="was"'
        steps = " ".join(
            f"{'M' if not index else 'L'}{x:.1f} {y:.1f}"
            for index, (x, y) in enumerate(place(*point) for point in line)
        )
        parts.append(f'<path{style} stroke="{colour}" d="{steps}"/>')
        if label not in named:
            y = TOP + 18 * len(named)
            parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y}" width="12" height="12" fill="{colour}"/>')
            parts.append(_text(WIDTH - RIGHT + 32, y + 11, label[:18]))
            named.add(label)
    return _svg(parts, HEIGHT)


def _with_flags(queues: Sequence[QueueMeasures]) -> list[tuple[QueueMeasures, bool]]:
    """Each with whether it is drawn solid: the last one is."""
    return [(queue, index == len(queues) - 1 and len(queues) > 1) for index, queue in enumerate(queues)]


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def _svg(parts: Sequence[str], height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<style>{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _file_name(name: QueueName) -> str:
    safe = "".join(char if char.isalnum() or char in "-_" else "_" for char in name[0])
    return f"{safe}-{name[1].value}"
