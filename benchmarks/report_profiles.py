"""The tables of the part `profile`: what each workload costs, what is asked for it, and where the time goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.counters import TOP
from benchmarks.layers import Layer, Wait
from benchmarks.report_tables import Row, percent, table

PROCESSES = ("server", "database", "worker", "client")
FUNCTIONS = {"server": 15, "worker": 8, "client": 8}
"""How many of each workload, those of one process in one table."""
STATEMENTS = 20
SAMPLES_MIN = 30
"""Fewer say nothing about shares."""


def show_profile(found: Row | None, console: Console) -> None:
    if not found:
        return
    rows = found["rows"]
    for line in dict.fromkeys(line for row in rows for line in _left_out(row)):
        console.print(line, markup=False)
    for made in (*_spent(rows), *_asked(rows), *_all_layers(rows), *_all_functions(rows), *_statements(rows)):
        console.print(made)


def _left_out(row: Row) -> Iterator[str]:
    for name, why in row["missing"].items():
        yield f"profile, {row['store']}: no {name}: {why}"
    for process, why in row["not_sampled"].items():
        yield f"profile, {row['store']}, {row['about']}: the {process} was not sampled: {why}"


def _spent(rows: Sequence[Row]) -> Iterator[Table]:
    if not rows:
        return
    made = table(
        "Profile: CPU ms for each task, workflow or second at rest, and of one core",
        "store",
        "workload",
        "per s",
        *PROCESSES,
        "all",
        "cores busy",
        "server in kernel",
        "others' CPU %",
        "load",
        caption="in brackets: cores that it kept busy; in kernel: of its CPU, by the kernel's own count; a backlog: "
        "its worker starts in it",
    )
    for row in rows:
        spent = {each["process"]: each for each in row["processes"]}
        cells = (_process(spent[name]) if name in spent else "" for name in PROCESSES)
        whole, cores = (sum(each[name] for each in row["processes"]) for name in ("cpu_ms", "cores"))
        rate = row["per_second"]
        made.add_row(
            row["store"],
            row["about"],
            "" if rate is None or row["name"] == "idle" else f"{rate:,.0f}",
            *cells,
            _ms(whole),
            f"{cores:.2f}",
            percent(spent["server"]["kernel"]),
            f"{row['others_percent']:.0f}",
            f"{row['load']:.1f}",
        )
    yield made


def _process(spent: Row) -> str:
    return f"{_ms(spent['cpu_ms'])} ({spent['cores']:.2f})"


def _asked(rows: Sequence[Row]) -> Iterator[Table]:
    if not rows:
        return
    made = table(
        "Profile: what is asked for each",
        "store",
        "workload",
        "requests",
        "statements",
        "commits",
        "database ms",
        "KB to disk",
        "server sleeps",
        "worker sleeps",
        "busy connections",
        "which requests",
        caption="statements: without those that begin and end transactions; database ms: how long PostgreSQL ran them; "
        "sleeps: how often a thread waited for something; busy connections: run, or what they wait for, while sampled",
    )
    for row in rows:
        counts = row["counts"]
        disk = counts["disk_bytes"]
        made.add_row(
            row["store"],
            row["about"],
            f"{sum(counts['requests'].values()):.2f}",
            _number(counts.get("statements")),
            _number(counts.get("commits"), 3),
            _number(counts.get("database_ms"), 3),
            _number(None if disk is None else disk / 1000),
            *(_number(counts["switches"].get(name)) for name in ("server", "worker")),
            ", ".join(f"{name} {percent(share)}" for name, share in list(row["connections"].items())[:3]),
            _requests(counts["requests"]),
        )
    yield made


def _requests(counts: Mapping[str, float]) -> str:
    most = sorted(counts.items(), key=lambda each: -each[1])[:4]
    return ", ".join(f"{name} {value:.2g}" for name, value in most)


def _all_layers(rows: Sequence[Row]) -> Iterator[Table]:
    for process in FUNCTIONS:
        there = [(row, each) for row, each in _sampled(rows, process) if each["samples"] >= SAMPLES_MIN]
        if there:
            yield _layers(process, there)


def _layers(process: str, there: Sequence[tuple[Row, Row]]) -> Table:
    names = [layer.value for layer in Layer if any(layer.value in each["layers"] for _, each in there)]
    waits = [wait.value for wait in Wait if any(wait.value in each["waits"] for _, each in there)]
    made = table(
        f"Profile: {process}, CPU ms for each by layer (share)",
        "store",
        "workload",
        *names,
        *(f"waits for {wait}" for wait in waits),
        "samples",
        "slowed",
        caption="shares of samples in which a thread worked, times the CPU of the undisturbed run; of the kernel at "
        "most what it counted itself; waits: of samples at work and such; slowed: by the sampler",
    )
    for row, each in there:
        spent = next(found["cpu_ms"] for found in row["processes"] if found["process"] == process)
        cells = (_share(each["layers"].get(name), spent) for name in names)
        waited = (percent(each["waits"].get(wait)) for wait in waits)
        made.add_row(
            row["store"], row["about"], *cells, *waited, f"{each['samples']:,}", f"{each['slowed']:.1f}"
        )
    return made


def _all_functions(rows: Sequence[Row]) -> Iterator[Table]:
    for store in dict.fromkeys(row["store"] for row in rows):
        own = [row for row in rows if row["store"] == store]
        for process, most in FUNCTIONS.items():
            there = [(row, each) for row, each in _sampled(own, process) if each["samples"] >= SAMPLES_MIN]
            shares = {
                row["about"]: {found["function"]: found["share"] for found in each["functions"]}
                for row, each in there
            }
            title = f"Profile: {store}, {process}, functions by own time, % of its CPU"
            caption = "function > layer: time that was spent for it there; blank: not among its first"
            yield from _matrix(title, "function", caption, shares, most, lambda share: f"{share * 100:.1f}")


def _statements(rows: Sequence[Row]) -> Iterator[Table]:
    """Of SQLite how often they are sent, of PostgreSQL how long they take."""
    caption = "blank: not among the first {} of a workload"
    for store, kind, field, title in (
        ("sqlite", "frequent", "calls", "Profile: statements of SQLite, how many for each"),
        ("postgres", "slowest", "ms", "Profile: statements of PostgreSQL, ms for each that it runs them"),
    ):
        values = {
            row["about"]: {each["statement"]: each[field] for each in row["counts"].get(kind, ())}
            for row in rows
            if row["store"] == store
        }
        said = caption.format(TOP)
        yield from _matrix(title, "statement", said, values, STATEMENTS, lambda value: f"{value:.3f}")


def _matrix(
    title: str,
    head: str,
    caption: str,
    columns: Mapping[str, Mapping[str, float]],
    most: int,
    written: Callable[[float], str],
) -> Iterator[Table]:
    """What is largest anywhere, and what it is in each workload."""
    names = {name for values in columns.values() for name in values}
    if not names:
        return
    ordered = sorted(names, key=lambda name: -max(values.get(name, 0.0) for values in columns.values()))
    made = table(title, "", head, *columns, caption=caption)
    for number, name in enumerate(ordered[:most], start=1):
        cells = (written(values[name]) if name in values else "" for values in columns.values())
        made.add_row(str(number), escape(name.replace("|", "/")), *cells)
    yield made


def _sampled(rows: Sequence[Row], process: str) -> Iterator[tuple[Row, Row]]:
    for row in rows:
        for each in row["samples"]:
            if each["process"] == process:
                yield row, each


def _share(share: float | None, spent: float) -> str:
    return "" if share is None else f"{_ms(share * spent)} ({percent(share)})"


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _ms(value: Any) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"
