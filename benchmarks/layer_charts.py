"""Where the CPU of the server goes, drawn from a report: a bar for each workload, a piece of it for each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.layers import Layer

Row = Mapping[str, Any]
WIDTH, LEFT, RIGHT, TOP = 800, 190, 110, 92
BAR, STEP = 22, 34
LEGEND_COLUMNS, LEGEND_STEP = 3, 22
NAMED_FROM = 0.08
"""Shorter pieces have no room for their share."""
SAMPLES_MIN = 30
PROCESS = "server"
COLOURS: Mapping[Layer, str] = {
    Layer.HTTP: "#2f6db3",
    Layer.WIRE: "#5aa7d6",
    Layer.ENGINE: "#2f8f5b",
    Layer.SCHEDULING: "#7fbf6a",
    Layer.HISTORY: "#b7ce5b",
    Layer.STORE: "#c9a227",
    Layer.DRIVER: "#d98a3d",
    Layer.SQLITE: "#c65b3f",
    Layer.FILES: "#8f3b46",
    Layer.SOCKETS: "#7a5ba6",
    Layer.LOOP: "#a58bd0",
    Layer.COLLECTING: "#8a7a6a",
    Layer.TELLING: "#b5a78e",
}
OTHER = "#9aa4b1"
STYLE = """
  svg { --ground: #ffffff; --edge: #d9dee5; --ink: #1c2430; --soft: #56606e;
        font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #151a22; --edge: #303946; --ink: #e9edf2; --soft: #a5b0be; }
  }
  .ground { fill: var(--ground); stroke: var(--edge) } .title { font-size: 17px; font-weight: 650; fill: var(--ink) }
  .ink { fill: var(--ink) } .soft { fill: var(--soft) } .end { text-anchor: end } .middle { text-anchor: middle }
  .on { fill: #ffffff; font-size: 11px; font-weight: 650 }
"""


STORES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def layer_titles() -> dict[str, str]:
    """Of the pictures, by their files."""
    return {_file(store): _title(store) for store in STORES}


def _title(store: str) -> str:
    return f"Server on {STORES.get(store, store)}: where its CPU goes"


def _file(store: str) -> str:
    return f"layers-{store}.svg"


def draw_layers(report: Row, folder: Path) -> list[Path]:
    """A picture for each store that has a profile with layers."""
    drawn = []
    rows = (report.get("profile") or {}).get("rows", ())
    for store in dict.fromkeys(row["store"] for row in rows):
        bars = [(row, each) for row in rows if row["store"] == store for each in _sampled(row)]
        if bars:
            path = folder / _file(store)
            path.write_text(picture(store, bars))
            drawn.append(path)
    return drawn


def kept_layers(report: Row) -> list[dict[str, Any]]:
    """As much of the profiles as their pictures are made of."""
    return [
        {
            "store": row["store"],
            "about": row["about"],
            "processes": [each for each in row["processes"] if each["process"] == PROCESS],
            "samples": [
                {name: each[name] for name in ("process", "samples", "layers")} for each in _sampled(row)
            ],
        }
        for row in (report.get("profile") or {}).get("rows", ())
        if any(_sampled(row))
    ]


def _sampled(row: Row) -> Iterator[Row]:
    return (each for each in row["samples"] if each["process"] == PROCESS and each["samples"] >= SAMPLES_MIN)


def picture(store: str, bars: Sequence[tuple[Row, Row]]) -> str:
    layers = [layer for layer in Layer if any(layer.value in each["layers"] for _, each in bars)]
    legend = TOP + STEP * len(bars) + 24
    height = legend + LEGEND_STEP * -(-len(layers) // LEGEND_COLUMNS) + 8
    told = "; ".join(f"{row['about']}: {_told(each['layers'])}" for row, each in bars)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        '     role="img" aria-labelledby="name what">',
        f'<title id="name">{escape(_title(store))}</title>',
        f'<desc id="what">{escape(f"Shares of its CPU by layer. {told}.")}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        _text(24, 38, _title(store), "title"),
        _text(24, 62, "% of its CPU by layer, sampled; right: CPU for each task, workflow or second", "soft"),
    ]
    for number, (row, each) in enumerate(bars):
        lines += _bar(row, each, TOP + STEP * number)
    for number, layer in enumerate(layers):
        lines += _legend(layer, number, legend)
    return "\n".join([*lines, "</svg>", ""])


def _bar(row: Row, sampled: Row, y: int) -> Iterator[str]:
    yield _text(LEFT - 12, y + 15, row["about"], "ink end")
    x = float(LEFT)
    for layer in Layer:
        share = sampled["layers"].get(layer.value, 0.0)
        length = share * (WIDTH - LEFT - RIGHT)
        if share:
            piece = f'x="{x:.1f}" y="{y}" width="{length:.1f}" height="{BAR}"'
            yield f'<rect fill="{_colour(layer)}" {piece}><title>{escape(f"{layer.value} {share:.0%}")}</title></rect>'
        if share >= NAMED_FROM:
            yield _text(x + length / 2, y + 15, f"{share:.0%}", "on middle")
        x += length
    spent = next(each["cpu_ms"] for each in row["processes"] if each["process"] == PROCESS)
    yield _text(WIDTH - RIGHT + 10, y + 15, f"{spent:.2f} ms", "ink")


def _legend(layer: Layer, number: int, top: int) -> Iterator[str]:
    column, line = number % LEGEND_COLUMNS, number // LEGEND_COLUMNS
    x, y = 24 + column * (WIDTH - 48) / LEGEND_COLUMNS, top + line * LEGEND_STEP
    yield f'<rect fill="{_colour(layer)}" x="{x:.1f}" y="{y - 11}" width="12" height="12" rx="2"/>'
    yield _text(x + 18, y, layer.value, "soft")


def _colour(layer: Layer) -> str:
    return COLOURS.get(layer, OTHER)


def _told(layers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in layers.items())


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
