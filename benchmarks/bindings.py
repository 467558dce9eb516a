"""What binds a figure, said from the findings of a report: its CPU by process and layer, its waits, and its counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.layers import Wait

Row = Mapping[str, Any]
NO_PROFILE = "no profile in this run: `python -m benchmarks --only profile`"
NO_WORKLOAD = "no workload of the profile belongs to it: see the table of its own part"
PROFILED = {
    "tasks": "tasks",
    "task_cpu": "tasks",
    "batches": "batches",
    "drain": "drain",
    "workflows_1": "workflows_1",
    "workflows_1_p99": "workflows_1",
    "workflows_5": "workflows_5",
    "result_p50": "latency",
    "start_p50": "latency",
    "first_task": "idle",
    "worker_memory": "idle",
    "worker_cpu": "idle",
    "server_memory": "idle",
    "server_cpu": "idle",
}
"""Which profile belongs to a measure of the part `peers`."""
FULL, CORE_FULL = 0.9, 0.85
"""From here on, all cores or one of them count as full: no process is at work all of the time."""
CORE_OF_TURNS, LOCK_BINDS = 0.65, 0.1
"""A process whose threads wait so much for their lock cannot fill a core: each turn begins late."""
CPU_BINDS = 0.6
"""Of the time to a result."""
LAYERS, FUNCTIONS, CONNECTIONS, SAMPLES_MIN = 4, 3, 3, 30
WAIT_MIN, OTHERS_MIN = 0.03, 25.0
EXPLAINS = 0.5


def profile_of(report: Row, ours: str, measure: str) -> Row | None:
    """The profile that belongs to a measure of ours, if it is in the report."""
    wanted = (ours.removeprefix("penstock, "), PROFILED.get(measure))
    rows = (report.get("profile") or {}).get("rows", ())
    return next((row for row in rows if (row["store"], row["name"]) == wanted), None)


def binds(report: Row, ours: str, measure: str) -> str:
    """What binds a measure of ours."""
    row = profile_of(report, ours, measure)
    if row is None:
        return NO_PROFILE
    if measure == "first_task":
        return _first_task(row["first_task"])
    if measure.endswith("_memory"):
        return _memory(report, row, measure.removesuffix("_memory"))
    if measure in ("worker_cpu", "server_cpu"):
        return "; ".join(_at_rest(row, measure.removesuffix("_cpu")))
    cores = (report.get("environment") or {}).get("cores") or 1
    told = _delay(row) if row["name"] == "latency" else _rate(row, cores)
    return "; ".join((*told, *_layers(row), *_waits(row), *_counts(row), *_connections(row)))


def grows(rate: float, cost: float | None) -> str:
    """Why ours is slower than itself elsewhere, by the CPU of the same comparison."""
    if cost is None or rate <= 0:
        return NO_WORKLOAD
    said = f"CPU of engine or server and database for each is {cost:.2f} times as much"
    lost = 1 / rate - 1
    if lost <= 0 or (cost - 1) / lost >= EXPLAINS:
        return f"{said}: the work itself grew"
    return f"{said}, which does not explain it: the rest waits, for the disk, for others, or for the machine"


def _rate(row: Row, cores: int) -> Iterator[str]:
    busy = sum(each["cores"] for each in row["processes"])
    others, most = row["others_percent"] / 100, _most(row)
    who = f"{most['process']} {most['cores']:.2f} of a core, {_ms(most['cpu_ms'])} ms CPU a {row['item']}"
    every = sum(each["cpu_ms"] for each in row["processes"])
    whole = f"{busy:.2f} of {cores} cores busy, {_ms(every)} ms CPU a {row['item']} in all processes"
    if most["cores"] >= CORE_FULL:
        yield f"one core binds: {who}; {whole}"
    elif busy >= FULL * cores:
        yield f"the CPU of the machine binds: {whole}; most of it {who}"
    elif busy + others >= FULL * cores:
        yield f"the machine was full, but others had {others:.2f} cores of it: {whole}; most of it {who}"
    elif most["cores"] >= CORE_OF_TURNS and _waited(row, most["process"], Wait.LOCK) >= LOCK_BINDS:
        yield f"the interpreter lock of the {most['process']} binds, its threads take turns: {who}; {whole}"
    else:
        yield f"waiting binds, for no process has a full core: {whole}; most of it {who}"


def _delay(row: Row) -> Iterator[str]:
    each = {process["process"]: process["cpu_ms"] for process in row["processes"]}
    listed = ", ".join(f"{name} {_ms(value)}" for name, value in each.items())
    whole, spent = row["latency_ms"]["p50"], sum(each.values())
    binds = (
        "the CPU on the way binds" if spent >= CPU_BINDS * whole else "waiting binds, for disk and wake-ups"
    )
    yield f"{binds}: {_ms(whole)} ms to the result, beside {_ms(spent)} ms CPU a {row['item']} ({listed})"
    if row["others_percent"] >= OTHERS_MIN:
        yield f"others had {row['others_percent'] / 100:.2f} cores meanwhile"


def _at_rest(row: Row, process: str) -> Iterator[str]:
    spent = next((each["cpu_ms"] for each in row["processes"] if each["process"] == process), 0.0)
    woken = row["counts"]["switches"].get(process, 0.0)
    yield f"{_ms(spent)} ms CPU a second of the {process} at rest, woken {woken:.1f} times a second"
    yield from _layers(row, process)
    if process == "server":
        yield from _counts(row)


def _first_task(first: Row) -> str:
    return (
        f"{first['cpu_ms']:.0f} of {first['ms']:.0f} ms to the first task are CPU of the worker; Python and its "
        f"imports alone take {first['import_cpu_ms']:.0f} ms CPU"
    )


def _memory(report: Row, row: Row, process: str) -> str:
    """What a process holds as it grows: after its imports, at rest, and at its largest."""
    imported, rest = row["first_task"]["import_mib"][process], row["memory_mib"][process]
    rows = (each for each in report["profile"]["rows"] if each["store"] == row["store"])
    most = max(each["memory_mib"][process]["values"] for each in rows)
    return (
        f"of the {process}, {imported:.0f} MiB are values after its imports alone, {rest['values']:.0f} at rest, "
        f"{most:.0f} after work; {rest['code']:.0f} MiB code"
    )


def _layers(row: Row, process: str | None = None) -> Iterator[str]:
    name = process or _sampled_most(row)
    sampled = next((each for each in row["samples"] if each["process"] == name), None)
    if sampled is None or sampled["samples"] < SAMPLES_MIN:
        return
    layers = ", ".join(f"{layer} {_percent(share)}" for layer, share in _first(sampled["layers"], LAYERS))
    busiest = "; ".join(
        f"{each['function']} {_percent(each['share'])}" for each in sampled["functions"][:FUNCTIONS]
    )
    yield f"of the {name}: {layers} (most own time: {busiest})"


def _sampled_most(row: Row) -> str:
    """The busiest process that was sampled; of a database, the server that asks it."""
    name = _most(row)["process"]
    return str("server" if name == "database" or row["name"] == "latency" else name)


def _waits(row: Row) -> Iterator[str]:
    for sampled in row["samples"]:
        if sampled["process"] == "server":
            found = [
                f"{what} {_percent(share)}" for what, share in sampled["waits"].items() if share >= WAIT_MIN
            ]
            if found:
                yield f"threads of the server wait for {', '.join(found)} of their time at work"


def _waited(row: Row, process: str, wait: Wait) -> float:
    shares = (each["waits"].get(wait.value, 0.0) for each in row["samples"] if each["process"] == process)
    return float(next(shares, 0.0))


def _counts(row: Row) -> Iterator[str]:
    counts, found = row["counts"], []
    for name, value in (
        ("requests", sum(counts["requests"].values())),
        ("statements", counts.get("statements")),
        ("commits", counts.get("commits")),
        ("KB to disk", None if counts["disk_bytes"] is None else counts["disk_bytes"] / 1000),
    ):
        if value is not None:
            found.append(f"{value:.3g} {name}")
    if found:
        yield f"{', '.join(found)} a {row['item']}"
    if counts.get("slowest"):
        slowest = counts["slowest"][0]
        whole = counts["database_ms"]
        yield (
            f"the database runs statements for {_ms(whole)} ms a {row['item']}, most of it "
            f"{_ms(slowest['ms'])} ms in `{slowest['statement'].replace('|', ' ')}`"
        )


def _most(row: Row) -> Row:
    most: Row = max(row["processes"], key=lambda each: each["cores"])
    return most


def _connections(row: Row) -> Iterator[str]:
    seen = [f"{name} {_percent(share)}" for name, share in _first(row["connections"], CONNECTIONS)]
    if seen:
        yield f"of its busy connections: {', '.join(seen)}"


def _first(shares: Mapping[str, float], count: int) -> Sequence[tuple[str, float]]:
    return list(shares.items())[:count]


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
