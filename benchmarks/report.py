"""The report as a table to read and as JSON to keep."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.report_flat import show_flat
from benchmarks.report_peers import show_peers, show_targets
from benchmarks.report_profiles import show_profile
from benchmarks.report_tables import Row
from benchmarks.report_tables import number as _number
from benchmarks.report_tables import ratio as _ratio
from benchmarks.report_tables import spread as _spread
from benchmarks.report_tables import table as _table


def show(report: Row, console: Console) -> None:
    """Print what was measured; sections that were not are left out."""
    show_place(report, console)
    for section, made in (("limits", _limits), ("workloads", _workloads), ("scaling", _scaling)):
        if report.get(section):
            console.print(made(report[section]))
    _show_engine(report, console)
    if report.get("workflows"):
        console.print(_workflows(report["workflows"]["at_work"]))
        console.print(_asleep(report["workflows"]["asleep"]))
    if report.get("accuracy"):
        console.print(_shares(report["accuracy"]))
        console.print(_crowds(report["accuracy"]))
    _show_sdk(report.get("sdk"), console)
    _show_workers(report.get("workers"), console)
    if report.get("resolving"):
        console.print(_resolving(report["resolving"]))
    show_flat(report, console)
    show_peers(report.get("peers"), console)
    show_profile(report.get("profile"), console)
    show_targets(report, console)


def show_place(report: Row, console: Console) -> None:
    """Where it was measured, and whether it counts."""
    if report.get("quick"):
        console.print("A quick run: its figures mean nothing.")
    facts = report["environment"]
    console.print(", ".join(f"{name} {value}" for name, value in facts.items() if value is not None))


def _show_engine(report: Row, console: Console) -> None:
    if found := report.get("dispatch_rates"):
        console.print(_dispatch_rates(found["rates"]))
        console.print(_dispatch_ratios(found["ratios"]))
        console.print(_placing(found["placing"]))
    if found := report.get("admission"):
        console.print(_limited_rates(found["rates"]))
        console.print(_limited_ratios(found["ratios"]))
        if found["hot_group"]:
            console.print(_hot_group(found["hot_group"]))
        console.print(_why(found["why"]))


def _show_sdk(found: Row | None, console: Console) -> None:
    if found is None:
        return
    for system in found["systems"]:
        console.print(f"{system['name']}: {system['settings']}")
    console.print(_sdk(found))
    console.print(_sdk_cpu(found["figures"]))
    if found["ratios"]:
        console.print(_sdk_ratios(found["ratios"]))


def _show_workers(found: Row | None, console: Console) -> None:
    if found is None:
        return
    for system in found["systems"]:
        console.print(f"{system['name']}: {system['settings']}", markup=False)
    console.print(_workers(found["figures"]))
    if found["ratios"]:
        console.print(_worker_ratios(found["ratios"]))


def _workers(rows: Sequence[Row]) -> Table:
    table = _table(
        "Worker programs: start to first task, and left alone after it",
        "worker, where tasks run",
        "first task ms",
        "its CPU ms",
        "CPU %",
        "server CPU %",
        "PSS MiB",
        "RSS MiB",
        "processes",
        "load",
        caption="first task: from the start of the command to the first line of a task that waited; its CPU: what all "
        "processes of the worker used until then; CPU: of one core, while idle; server: its servers and databases; "
        "PSS, RSS: summed over all processes of the worker",
    )
    for row in rows:
        names = ("first_task_ms", "first_task_cpu_ms", "cpu_percent")
        rest = ("server_cpu_percent", "pss_mib", "rss_mib")
        shown = [_spread(row[name]) for name in names] + [f"{row[name]['median']:.1f}" for name in rest]
        load = f"{row['load']['median']:.1f}"
        processes = _number(row["processes"]["median"])
        table.add_row(f"{row['worker']}; {row['kind']}", *shown, processes, load)
    return table


def _worker_ratios(rows: Sequence[Row]) -> Table:
    table = _table(
        "Our workers to those of a peer, by medians; lower is better",
        "ours / peer",
        "tasks run in",
        "first task",
        "its CPU",
        "CPU",
        "server CPU",
        "PSS",
        "RSS",
    )
    for row in rows:
        names = (
            "first_task_ms",
            "first_task_cpu_ms",
            "cpu_percent",
            "server_cpu_percent",
            "pss_mib",
            "rss_mib",
        )
        table.add_row(f"{row['ours']} / {row['peer']}", row["kind"], *(_ratio(row[name]) for name in names))
    return table


def _resolving(rows: Sequence[Row]) -> Table:
    table = _table(
        "Finding where an activity goes, CPU microseconds", "asked for", "routes", "median", "min..max"
    )
    for row in rows:
        spent = row["us"]
        table.add_row(
            row["name"],
            _number(row["routes"]),
            f"{spent['median']:.1f}",
            f"{spent['min']:.1f}..{spent['max']:.1f}",
        )
    return table


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


def _dispatch_rates(rows: Sequence[Row]) -> Table:
    table = _table(
        "Dispatches at the engine, claim after claim",
        "store",
        "fairness",
        "keys",
        "tasks",
        "a claim",
        "per s",
        "min..max",
        "CPU ms",
        "load",
        caption="a claim: the most tasks that one claim takes; CPU ms: of engine and database, for each task",
    )
    for row in rows:
        table.add_row(
            row["store"],
            row["fairness"],
            _number(row["keys"]),
            _number(row["backlog"]),
            str(row["batch"]),
            _number(row["per_second"]["median"]),
            _range(row["per_second"]),
            f"{row['cpu_ms']['median']:.2f}",
            _load(row),
        )
    return table


def _dispatch_ratios(rows: Sequence[Row]) -> Table:
    table = _table(
        "Dispatch rates compared, round by round",
        "store",
        "compared",
        "a claim",
        "rate ratio",
        "min..max",
        "CPU ratio",
        "target",
        caption="1.00 is no difference; rate: higher is better; CPU: lower is better",
    )
    for row in rows:
        rate = row["rate"]
        table.add_row(
            row["store"],
            row["name"],
            str(row["batch"]),
            _ratio(rate["median"]),
            f"{rate['min']:.2f}..{rate['max']:.2f}",
            _ratio(row["cpu"]["median"]),
            "" if row["target"] is None else f"at least {row['target']:.2f}",
        )
    return table


def _placing(rows: Sequence[Row]) -> Table:
    table = _table(
        "Claims of one task right after all keys came at once, until each had its place",
        "store",
        "keys",
        "tasks",
        "claims",
        "ms each",
    )
    for row in rows:
        table.add_row(
            row["store"],
            _number(row["keys"]),
            _number(row["backlog"]),
            _number(row["claims"]),
            f"{row['ms_each']:.1f}",
        )
    return table


def _limited_rates(rows: Sequence[Row]) -> Table:
    table = _table(
        "Dispatches and ended leases at the engine, by what limits them",
        "store",
        "limits",
        "part",
        "queues",
        "a claim",
        "at once",
        "per s",
        "min..max",
        "CPU ms",
        "load",
        caption="a claim: the most tasks that one claim takes; at once: claims that wait for the store together; "
        "CPU ms: of engine and database, for each task",
    )
    for row in rows:
        table.add_row(
            row["store"],
            row["limits"],
            row["part"],
            str(row["queues"]),
            str(row["batch"]),
            str(row["at_once"]),
            _number(row["per_second"]["median"]),
            _range(row["per_second"]),
            f"{row['cpu_ms']['median']:.2f}",
            _load(row),
        )
    return table


def _limited_ratios(rows: Sequence[Row]) -> Table:
    table = _table(
        "Rates with limits to those without, round by round",
        "store",
        "limits",
        "part",
        "queues",
        "a claim",
        "at once",
        "rate ratio",
        "min..max",
        "CPU ratio",
        "target",
        caption="1.00 is no difference; rate: higher is better; CPU: lower is better",
    )
    for row in rows:
        rate = row["rate"]
        table.add_row(
            row["store"],
            row["limits"],
            row["part"],
            str(row["queues"]),
            str(row["batch"]),
            str(row["at_once"]),
            _ratio(rate["median"]),
            f"{rate['min']:.2f}..{rate['max']:.2f}",
            _ratio(row["cpu"]["median"]),
            "" if row["target"] is None else f"at least {row['target']:.2f}",
        )
    return table


def _hot_group(rows: Sequence[Row]) -> Table:
    table = _table(
        "One budget group on several servers, PostgreSQL: tasks claimed and completed",
        "servers",
        "limits",
        "a claim",
        "per s",
        "min..max",
        "to one server",
        "to no limit",
        "CPU ms",
        "connections",
        "load",
        caption="connections: what busy ones were seen to do, or to wait for, most often",
    )
    for row in rows:
        seen = ", ".join(f"{name} {share:.0%}" for name, share in list(row["waits"].items())[:2])
        table.add_row(
            str(row["servers"]),
            row["limits"],
            str(row["batch"]),
            _number(row["per_second"]["median"]),
            _range(row["per_second"]),
            _ratio(row["to_one_server"]["median"]),
            _ratio(row["to_no_limit"]["median"]),
            f"{row['cpu_ms']['median']:.2f}",
            seen,
            _load(row),
        )
    return table


def _why(rows: Sequence[Row]) -> Table:
    table = _table(
        "Why a task waits: milliseconds until the answer",
        "store",
        "situation",
        "task",
        "waiting",
        "keys",
        "median",
        "slowest",
        "target",
        "load",
    )
    for row in rows:
        table.add_row(
            row["store"],
            row["situation"],
            row["task"],
            _number(row["backlog"]),
            _number(row["keys"]),
            f"{row['p50_ms']:.1f}",
            f"{row['slowest_ms']:.1f}",
            f"below {row['target_ms']}",
            _load(row),
        )
    return table


def _workflows(rows: Sequence[Row]) -> Table:
    table = _table(
        "Workflows where they are large, through HTTP",
        "store",
        "what",
        "size",
        "ms",
        "min..max",
        "per s",
        "CPU ms",
        "time",
        "CPU",
        "late",
        "load",
        caption="ms: of one request; CPU ms: of server and database, for each; time, CPU: to the short, few or "
        "standalone ones; late: the last reports to the first",
    )
    for row in rows:
        table.add_row(
            row["store"],
            f"{row['part']}: {row['what']}",
            _number(row["size"]),
            f"{row['ms']['median']:.1f}",
            f"{row['ms']['min']:.1f}..{row['ms']['max']:.1f}",
            _number(row["per_second"]["median"]),
            f"{row['cpu_ms']['median']:.2f}",
            _ratio(row["ratios"]["time"]),
            _ratio(row["ratios"]["cpu"]),
            _ratio(row.get("late_to_early")),
            _load(row),
        )
    return table


def _asleep(rows: Sequence[Row]) -> Table:
    table = _table(
        "A server that has nothing to do, beside timers that sleep",
        "store",
        "timers",
        "server CPU %",
        "database CPU %",
        "ratio",
        "memory MiB",
        "ratio",
        "start s",
        "ratio",
        "load",
    )
    for row in rows:
        table.add_row(
            row["store"],
            _number(row["timers"]),
            *(_cpu(row["cpu_percent"], name) for name in ("server", "database")),
            _ratio(row["ratios"]["cpu"]),
            _number(row["memory_mib"]["median"]),
            _ratio(row["ratios"]["memory"]),
            f"{row['start_seconds']['median']:.1f}",
            _ratio(row["ratios"]["start"]),
            _load(row),
        )
    return table


def _shares(rows: Sequence[Row]) -> Table:
    table = _table(
        "Weights 5, 3 and 2",
        "system",
        "dispatches",
        "served",
        "share error",
        caption="share error: the largest |served - share x N| of a key over all prefixes, in tasks",
    )
    for row in rows:
        if row["experiment"] == "shares":
            served = "/".join(str(count) for count in row["served"])
            table.add_row(_system(row), _number(row["dispatches"]), served, f"{row['share_error']:.2f}")
    return table


def _crowds(rows: Sequence[Row]) -> Table:
    table = _table(
        "Equal keys: the first round, a weight changed from 1 to 10 on the backlog, and keys that come late",
        "system",
        "keys",
        "tasks",
        "share error",
        "unserved",
        "worst first",
        "weight 1",
        "weight 10",
        "newcomer",
        "20 newcomers",
        caption="unserved: keys without a dispatch after one for each; worst first: most dispatches before a key's "
        "first; weight: what one key was served of what it was due; newcomer: dispatches before its first, "
        "of 20 at once median/worst",
    )
    for row in rows:
        if row["experiment"] == "crowd":
            changed, late = row["weight_change"], row["newcomers"]
            table.add_row(
                _system(row),
                _number(row["keys"]),
                _number(row["backlog"]),
                f"{row['share_error']:.2f}",
                f"{row['unserved_percent']:.1f} %",
                _number(row["first_service"]["worst"]),
                *(f"{changed[when]['favoured']} of {changed[when]['due']}" for when in ("before", "after")),
                _number(row["lone_newcomer"]),
                f"{_number(late['median'])}/{_number(late['worst'])}",
            )
    return table


def _sdk(found: Row) -> Table:
    systems = [system["name"] for system in found["systems"]]
    table = _table("SDKs in one run: median, least and most", "measure", *systems, "load")
    values: dict[str, dict[str, Row]] = {}
    for row in found["figures"]:
        values.setdefault(f"{row['measure']}, {row['unit']}", {})[row["system"]] = row
    for measure, by_system in values.items():
        cells = (_spread(by_system[name]["value"]) if name in by_system else "" for name in systems)
        least = min(row["load"]["min"] for row in by_system.values())
        most = max(row["load"]["max"] for row in by_system.values())
        table.add_row(measure, *cells, f"{least:.1f}..{most:.1f}")
    return table


def _sdk_cpu(rows: Sequence[Row]) -> Table:
    table = _table(
        "CPU ms for each task, workflow, activity, event or update",
        "system",
        "measure",
        "server",
        "database",
        "worker",
        "client",
        "all",
        caption="all: client included but for updates, whose client is left out",
    )
    for row in rows:
        if row["cpu_ms"]:
            roles = (_cpu(row["cpu_ms"], name) for name in ("server", "database", "worker", "client"))
            whole = sum(each["median"] for each in row["cpu_ms"].values())
            table.add_row(row["system"], row["measure"], *roles, f"{whole:.2f}")
    return table


def _sdk_ratios(rows: Sequence[Row]) -> Table:
    pairs = list(dict.fromkeys((row["ours"], row["peer"]) for row in rows))
    names = (f"{own} / {peer}" for own, peer in pairs)
    table = _table("Ours to a peer, by medians", "measure, better if", *names)
    by_measure: dict[str, dict[tuple[str, str], float | None]] = {}
    for row in rows:
        found = by_measure.setdefault(f"{row['measure']}: {row['better']}", {})
        found[row["ours"], row["peer"]] = row["ratio"]
    for measure, values in by_measure.items():
        table.add_row(measure, *(_ratio(values.get(pair)) for pair in pairs))
    return table


def _system(row: Row) -> str:
    return f"{row['system']}, {row['setting']}"


def _range(figure: Row) -> str:
    return f"{_number(figure['min'])}..{_number(figure['max'])}"


def _cpu(cpu: Row, name: str) -> str:
    return f"{cpu[name]['median']:.2f}" if name in cpu else ""


def _load(row: Row) -> str:
    return f"{row['load']['median']:.1f}"
