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
        "dashboard": _pages,
    }
    for section, made in tables.items():
        if report.get(section):
            console.print(made(report[section]))
    if found := report.get("dashboard"):
        console.print(_viewers(found))


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


def _pages(found: Row) -> Table:
    budgets = found["budgets"]
    made = table(
        "Pages of the dashboard",
        "store",
        "page",
        "first ms",
        "p50 ms",
        "p95 ms",
        "CPU ms",
        "CPU ms, p95",
        "KB",
        "statements",
        "scans",
        "load",
        caption=f"at most {budgets['ms']} ms at p95, {budgets['bytes'] // 1000} KB, and {budgets['statements']} "
        "statements; the first request of a page is apart",
    )
    for row in found["pages"]:
        made.add_row(
            row["store"],
            row["page"],
            number(row["first_ms"]),
            number(row["p50_ms"]),
            number(row["p95_ms"]),
            number(row["cpu_ms"]),
            number(row["cpu_p95_ms"]),
            f"{row['bytes'] / 1000:.1f}",
            str(row["statements"]),
            ", ".join(row["scans"]) or "none",
            f"{row['load']:.1f}",
        )
    return made


def _viewers(found: Row) -> Table:
    budgets = found["budgets"]
    made = table(
        "Open pages of the dashboard",
        "store",
        "open",
        "of a core",
        "dispatch rate",
        "by the clock",
        "load",
        caption=f"at most {budgets['cpu_share']:.0%} of a core, and a rate of at least {budgets['rate_ratio']:.2f} "
        "of that without them, by the CPU time that is left of one core; load tells how far to trust the clock",
    )
    for row in found["viewers"]:
        rates = [row["rate_ratio"], row["clock_ratio"]]
        made.add_row(
            row["store"],
            str(row["open"]),
            spread(row["cpu_share"]),
            *(f"{ratio(each['median'])} [{ratio(each['min'])}..{ratio(each['max'])}]" for each in rates),
            f"{row['load']['median']:.1f}",
        )
    return made
