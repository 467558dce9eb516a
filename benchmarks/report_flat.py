"""The tables of what must not grow: work beside crowds, what it takes to be there, several servers, and a soak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.report_tables import Row, number, ratio, spread, table


def show_flat(report: Row, console: Console) -> None:
    tables: dict[str, Any] = {
        "beside": _beside,
        "footprint": _footprint,
        "servers": _servers,
        "soak": _soak,
    }
    for section, made in tables.items():
        if report.get(section):
            console.print(made(report[section]))


def _beside(rows: Sequence[Row]) -> Table:
    made = table(
        "The same work alone, and beside what does not concern it",
        "store",
        "beside",
        "work",
        "per s, alone",
        "per s, beside",
        "rate ratio",
        "CPU ratio",
        "load",
        caption="1.00 is no difference; rate: higher is better; CPU of server and database: lower is better",
    )
    for row in rows:
        rate, cpu = row["rate"], row["cpu"]
        made.add_row(
            row["store"],
            f"{row['size']:,} {row['crowd']}",
            row["name"],
            spread(row["per_second"]["alone"]),
            spread(row["per_second"]["beside"]),
            f"{ratio(rate['median'])} [{ratio(rate['min'])}..{ratio(rate['max'])}]",
            ratio(cpu["median"]),
            f"{row['load']['median']:.1f}",
        )
    return made


def _footprint(rows: Sequence[Row]) -> Table:
    made = table("What it takes to be there", "store", "what", "median [min..max]", "unit", "load")
    for row in rows:
        load = f"{row['load']['median']:.1f}"
        made.add_row(row["store"], row["name"], spread(row["value"]), row["unit"], load)
    return made


def _servers(rows: Sequence[Row]) -> Table:
    made = table(
        "Several servers on one PostgreSQL",
        "work",
        "servers",
        "per s",
        "to one server",
        "cores: servers",
        "database",
        "clients",
        "connections",
        "load",
        caption="cores: how many were kept busy; connections: what busy ones were seen to do, or to wait for, "
        "most often",
    )
    for row in rows:
        cores = (f"{row['cores'][name]['median']:.2f}" for name in ("servers", "database", "clients"))
        seen = ", ".join(f"{name} {share:.0%}" for name, share in list(row["waits"].items())[:3])
        made.add_row(
            row["name"],
            str(row["servers"]),
            spread(row["per_second"]),
            ratio(row["to_one"]["median"]),
            *cores,
            seen,
            f"{row['load']['median']:.1f}",
        )
    return made


def _soak(rows: Sequence[Row]) -> Table:
    made = table(
        f"A soak of {rows[0]['minutes']:g} minutes, {number(rows[0]['done'])} tasks",
        "store",
        "what",
        "first",
        "settled",
        "last",
        "most",
        "growth an hour",
        "bytes a task",
        caption="settled: after a quarter of the time; growth: the line of least squares through what came after that",
    )
    for row in rows:
        values = (f"{row[name]:,.2f}" for name in ("first", "settled", "last", "most", "per_hour"))
        each = "" if row["bytes_each"] is None else f"{row['bytes_each']:,.0f}"
        made.add_row(row["store"], row["name"], *values, each)
    return made
