"""The report as a table to read and as JSON to keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Row = Mapping[str, Any]


def show(report: Row, console: Console) -> None:
    """Print what was measured; sections that were not are left out."""
    facts = report["environment"]
    console.print(", ".join(f"{name} {value}" for name, value in facts.items() if value is not None))
    if report["limits"]:
        console.print(_limits(report["limits"]))
    if report["workloads"]:
        console.print(_workloads(report["workloads"]))
    if report["scaling"]:
        console.print(_scaling(report["scaling"]))


def _limits(rows: Sequence[Row]) -> Table:
    table = _table("Limits of this machine, per second", "store", "limit", "median", "min..max", "load")
    for row in rows:
        rate = row["per_second"]
        table.add_row(row["store"], row["name"], _number(rate["median"]), _range(rate), _load(row))
    return table


def _workloads(rows: Sequence[Row]) -> Table:
    table = _table(
        "Workloads through HTTP",
        "store",
        "workload",
        "per s",
        "min..max",
        "p50/p99 ms",
        "server",
        "database",
        "client",
        "of commits",
        "of requests",
        "load",
        caption="server, database, client: CPU ms per task; of commits: tasks to commits one by one; "
        "of requests: requests to checked requests",
    )
    for row in rows:
        rate, cpu, delay, ratios = row["per_second"], row["cpu_ms"], row["latency_ms"], row["ratios"]
        table.add_row(
            row["store"],
            row["name"],
            _number(rate["median"]),
            _range(rate),
            f"{delay['p50']['median']:.0f}/{delay['p99']['median']:.0f}" if delay else "",
            *(_cpu(cpu, name) for name in ("server", "database", "client")),
            _ratio(ratios["tasks to commits one by one"]),
            _ratio(ratios["requests to checked requests"]),
            _load(row),
        )
    return table


def _scaling(rows: Sequence[Row]) -> Table:
    few, many = rows[0]["few"], rows[0]["many"]
    table = _table(
        f"The same work beside {few:,} and beside {many:,} other tasks",
        "store",
        "others",
        f"per s, {few:,}",
        f"per s, {many:,}",
        "rate ratio",
        "CPU ratio",
        "load",
        caption="1.00 is no growth; rate: higher is better; CPU of server and database: lower is better",
    )
    for row in rows:
        rate, ratios = row["per_second"], row["ratios"]
        table.add_row(
            row["store"],
            row["name"],
            f"{_number(rate['few']['median'])} [{_range(rate['few'])}]",
            f"{_number(rate['many']['median'])} [{_range(rate['many'])}]",
            _ratio(ratios["rate, many to few"]),
            _ratio(ratios["CPU of server and database, many to few"]),
            _load(row),
        )
    return table


def _table(title: str, *columns: str, caption: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < 2 else "right", no_wrap=place != 1)
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}"


def _range(figure: Row) -> str:
    return f"{_number(figure['min'])}..{_number(figure['max'])}"


def _cpu(cpu: Row, name: str) -> str:
    return f"{cpu[name]['median']:.2f}" if name in cpu else ""


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _load(row: Row) -> str:
    return f"{row['load']['median']:.1f}"
