"""The tables of the part `peers`, and of the targets that it and other parts measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.bindings import profile_of
from benchmarks.report_tables import Row, ratio, spread, table
from benchmarks.samples import ratio as divided
from benchmarks.targets import BOTH, WORST_FIRST, Judged, Verdict, by_target, judged

TABLES: Mapping[str, Mapping[str, str]] = {
    "Standalone tasks, per s": {
        "tasks": "one call each",
        "task_cpu": "CPU ms of all for one",
        "batches": "100 a call",
        "drain": "a backlog",
    },
    "One task at a time on an idle system, ms": {
        "start_p50": "to first line, p50",
        "start_p99": "p99",
        "result_p50": "to result, p50",
        "result_p99": "p99 ",
    },
    "Workflows of 1 activity": {
        "workflows_1": "per s",
        "workflows_1_p50": "start to result, p50 ms",
        "workflows_1_p99": "p99 ms",
    },
    "Workflows of 5 activities": {
        "workflows_5": "per s",
        "workflows_5_p50": "start to result, p50 ms",
        "workflows_5_p99": "p99 ms",
    },
    "Workflows by a queue of the library": {
        "queued_1": "1 activity, per s",
        "queued_1_p99": "p99 ms",
        "queued_5": "5 activities, per s",
        "queued_5_p99": "p99 ms ",
    },
    "Start, and at rest": {
        "first_task": "worker, first task ms",
        "worker_memory": "worker MiB",
        "worker_cpu": "worker CPU %",
        "server_memory": "server MiB",
        "server_cpu": "server CPU %",
    },
}
"""Each with its measures, and what they are called there."""
PROCESSES = ("server", "database", "broker", "worker", "client")
COMPARED = {
    "tasks": "tasks ↑",
    "task_cpu": "their CPU ↓",
    "batches": "batches ↑",
    "drain": "backlog ↑",
    "start_p50": "first line ↓",
    "result_p50": "result ↓",
    "workflows_1": "workflows, 1 ↑",
    "workflows_1_p99": "p99 ↓",
    "workflows_5": "workflows, 5 ↑",
    "first_task": "first task ↓",
    "worker_memory": "worker memory ↓",
    "worker_cpu": "worker CPU ↓",
}


def show_peers(found: Row | None, console: Console) -> None:
    if not found:
        return
    for system in found["systems"]:
        console.print(f"{system['system']}: {system['settings']}", markup=False)
    for missing in found["missing"]:
        console.print(f"{missing['system']}: left out: {missing['why']}", markup=False)
    for title, heads in TABLES.items():
        for made in _measured(title, heads, found["figures"]):
            console.print(made)
    for made in (*_spent(found["figures"]), *_ratios(found["figures"])):
        console.print(made)


def _measured(title: str, heads: Mapping[str, str], figures: Sequence[Row]) -> Iterator[Table]:
    there = {row["measure"] for row in figures}
    keys = [key for key in heads if key in there]
    if not keys:
        return
    made = table(title, "system", *(heads[key] for key in keys), "repetitions", "others' CPU %", "load")
    for system, rows in _by_system(figures).items():
        own = [rows[key] for key in keys if key in rows]
        if own:
            cells = (spread(rows[key]["value"]) if key in rows else "" for key in keys)
            repetitions = str(min(row["repetitions"] for row in own))
            made.add_row(system, *cells, repetitions, _others(own), _loads(own))
    yield made


def _spent(figures: Sequence[Row]) -> Iterator[Table]:
    """Which processes the time goes to, and how much of the machine they kept busy: this is what binds a rate."""
    rows = [row for row in figures if row.get("cpu_ms") and row["unit"] == "per s"]
    if not rows:
        return
    made = table(
        "CPU ms for each task or workflow, by process",
        "system",
        "measure",
        *PROCESSES,
        "all",
        "cores busy",
        caption="cores busy: all of it times the rate; as many as the machine has: CPU binds",
    )
    for row in rows:
        spent = {name: cpu["median"] for name, cpu in row["cpu_ms"].items()}
        whole = sum(spent.values())
        cells = (f"{spent[name]:.2f}" if name in spent else "" for name in PROCESSES)
        cores = whole * row["value"]["median"] / 1000
        made.add_row(row["system"], row["about"], *cells, f"{whole:.2f}", f"{cores:.2f}")
    yield made


def _by_system(figures: Sequence[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for row in figures:
        found.setdefault(row["system"], {})[row["measure"]] = row
    return found


def _others(rows: Sequence[Row]) -> str:
    told = [row["others_percent"] for row in rows if row["others_percent"]]
    return f"{max(each['median'] for each in told):.0f}" if told else ""


def _loads(rows: Sequence[Row]) -> str:
    least, most = min(row["load"]["min"] for row in rows), max(row["load"]["max"] for row in rows)
    return f"{least:.1f}..{most:.1f}"


def _ratios(figures: Sequence[Row]) -> Iterator[Table]:
    """Ours by each peer: of rates, and of times and costs."""
    systems = _by_system(figures)
    for own in (each for each in BOTH if each in systems):
        keys = [key for key in COMPARED if key in systems[own]]
        made = table(
            f"{own}, by each peer",
            "peer",
            *(COMPARED[key] for key in keys),
            caption="of medians; ↑: more is better, ↓: less is",
        )
        for peer, rows in systems.items():
            cells = [ratio(_median_ratio(systems[own], rows, key)) for key in keys]
            if peer not in BOTH and any(cells):
                made.add_row(peer, *cells)
        if made.row_count:
            yield made


def _median_ratio(own: Mapping[str, Row], peer: Mapping[str, Row], key: str) -> float | None:
    if key not in peer:
        return None
    return divided(own[key]["value"]["median"], peer[key]["value"]["median"])


def show_targets(report: Mapping[str, Any], console: Console) -> None:
    lines = judged(report)
    if all(each.verdict is Verdict.UNKNOWN for each in lines):
        return
    console.print(_targets(lines))
    counted = list(by_target(lines).values())
    told = ", ".join(f"{counted.count(verdict)} {verdict.value}" for verdict in Verdict)
    console.print(f"Of {len(counted)} targets: {told}.")
    missed = sorted({each.line.number for each in lines if each.verdict is Verdict.MISSED})
    if missed:
        console.print(f"Missed: {', '.join(map(str, missed))}.")
    for made in _bound(report, lines):
        console.print(made)


def _bound(report: Row, lines: Sequence[Judged]) -> Iterator[Table]:
    """What binds every line that is not at its goal; lines that the same thing binds stand together."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in sorted(lines, key=lambda each: WORST_FIRST.index(each.verdict)):
        if each.binds:
            row = profile_of(report, each.line.ours, each.line.key)
            profile = "" if row is None else f"{row['store']}, {row['about']}"
            about = f"{each.line.number} {each.line.against} ({each.verdict.value})"
            found.setdefault((profile, each.binds), []).append(about)
    if not found:
        return
    made = table(
        "What binds the targets that are not at their goal",
        "profile",
        "what binds",
        "targets",
        caption="profile: the row of the tables of the part profile that says so",
    )
    made.columns[2].no_wrap, made.columns[2].justify = False, "left"
    for (profile, binds), targets in found.items():
        made.add_row(profile, escape(binds), escape(", ".join(targets)))
    yield made


def _targets(lines: Sequence[Judged]) -> Table:
    made = table(
        "Targets",
        "#",
        "measure",
        "against",
        "ratio",
        "floor",
        "goal",
        "verdict",
        "measured",
        "note",
        caption="≥: ours must be so many times theirs; ≤: at most so much of it",
    )
    for each in lines:
        line, found = each.line, each.ratio
        made.add_row(
            str(line.number),
            line.measure,
            line.against,
            "" if found is None else f"{found.value:.3g}",
            line.bounds.written(line.bounds.floor),
            line.bounds.written(line.bounds.goal),
            each.verdict.value,
            "" if found is None else found.sides,
            "" if found is None else found.note,
        )
    return made
