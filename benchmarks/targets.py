"""The targets: what each ratio must reach, and what a report says of it.

A release needs the floors; the goals are what is aimed at. Each line has one ratio; a target with several lines is
met when all of them are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from benchmarks.bindings import binds, grows
from benchmarks.peer_measures import LESS, MORE

Row = Mapping[str, Any]
SQLITE, POSTGRES = "penstock, sqlite", "penstock, postgres"
BOTH = (SQLITE, POSTGRES)
DBOS_ANY = ("dbos, sqlite", "dbos, postgres")
TEMPORAL = "temporal dev server"
REPETITIONS_MIN = 3


class Verdict(StrEnum):
    GOAL = "goal met"
    FLOOR = "floor met"
    MISSED = "missed"
    UNKNOWN = "not measured in this run"


WORST_FIRST = (Verdict.MISSED, Verdict.UNKNOWN, Verdict.FLOOR, Verdict.GOAL)


@dataclass(frozen=True, slots=True)
class Bounds:
    floor: float
    goal: float
    better: str = MORE

    def verdict(self, ratio: float | None) -> Verdict:
        if ratio is None:
            return Verdict.UNKNOWN
        if self._reaches(ratio, self.goal):
            return Verdict.GOAL
        return Verdict.FLOOR if self._reaches(ratio, self.floor) else Verdict.MISSED

    def _reaches(self, ratio: float, bound: float) -> bool:
        return ratio >= bound if self.better == MORE else ratio <= bound

    def written(self, bound: float) -> str:
        return f"{'≥' if self.better == MORE else '≤'} {bound:g}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """What was measured for one line of a target."""

    value: float
    sides: str
    """Both sides, as they were measured."""
    note: str = ""
    cost: float | None = None
    """Of a ratio to itself, how many times as much CPU it takes."""


Find = Callable[[Row], Ratio | None]


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    measure: str
    against: str
    bounds: Bounds
    find: Find
    ours: str = ""
    """Which of our systems it is about, of lines that have peers."""
    key: str = ""
    """And which of its measures."""


@dataclass(frozen=True, slots=True)
class Judged:
    line: Line
    ratio: Ratio | None
    binds: str = ""
    """What binds it, where the goal is not met."""

    @property
    def verdict(self) -> Verdict:
        return self.line.bounds.verdict(None if self.ratio is None else self.ratio.value)


def judged(report: Row) -> list[Judged]:
    """Every line of every target, in order."""
    found = [Judged(line, line.find(report)) for line in LINES]
    return [replace(each, binds=_binds(report, each)) for each in found]


def _binds(report: Row, each: Judged) -> str:
    if each.ratio is None or each.verdict is Verdict.GOAL:
        return ""
    if each.line.ours:
        return binds(report, each.line.ours, each.line.key)
    return grows(each.ratio.value, each.ratio.cost)


def by_target(lines: Iterable[Judged]) -> dict[int, Verdict]:
    """Each target by the worst of its lines."""
    found: dict[int, Verdict] = {}
    for each in lines:
        before = found.get(each.line.number, Verdict.GOAL)
        found[each.line.number] = min(before, each.verdict, key=WORST_FIRST.index)
    return found


def as_rows(lines: Iterable[Judged]) -> list[dict[str, Any]]:
    """The lines as values to keep."""
    return [
        {
            "number": each.line.number,
            "measure": each.line.measure,
            "against": each.line.against,
            "ratio": None if each.ratio is None else round(each.ratio.value, 4),
            "sides": "" if each.ratio is None else each.ratio.sides,
            "floor": each.line.bounds.written(each.line.bounds.floor),
            "goal": each.line.bounds.written(each.line.bounds.goal),
            "verdict": each.verdict.value,
            "note": "" if each.ratio is None else each.ratio.note,
            "binds": each.binds,
        }
        for each in lines
    ]


# Finding ratios in a report


def of_peers(ours: str, measure: str, peers: Sequence[str], peer_measure: str = "") -> Find:
    """Ours by the best of these peers, both by their medians."""

    def find(report: Row) -> Ratio | None:
        mine = _figure(report, ours, measure)
        theirs = [_figure(report, peer, peer_measure or measure) for peer in peers]
        there = [each for each in theirs if each is not None and each["value"]["median"]]
        if mine is None or not there:
            return None
        best = (max if mine["better"] == MORE else min)(there, key=lambda each: each["value"]["median"])
        own, other = mine["value"]["median"], best["value"]["median"]
        sides = f"{_written(own)} / {_written(other)} {mine['unit']} ({best['system']})"
        return Ratio(own / other, sides, _note((mine, best)))

    return find


def _figure(report: Row, system: str, measure: str) -> Row | None:
    rows = (report.get("peers") or {}).get("figures", ())
    return next((row for row in rows if (row["system"], row["measure"]) == (system, measure)), None)


def _written(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _note(figures: Sequence[Row]) -> str:
    """What a reader must know of a ratio: too few repetitions, or sides that did not meet the same neighbours."""
    said = []
    fewest = min(each["repetitions"] for each in figures)
    if fewest < REPETITIONS_MIN:
        said.append(f"{fewest} repetition{'s' if fewest > 1 else ''}")
    if len({each.get("run") for each in figures}) > 1:
        said.append("sides of two runs")
    return ", ".join(said)


def of_rows(section: str, rows: str, takes: Callable[[Row], bool], better: str = MORE) -> Find:
    """The worst of the ratios to itself that one part of a report has."""

    def find(report: Row) -> Ratio | None:
        there = [row for row in (report.get(section) or {}).get(rows, ()) if takes(row)]
        if not there:
            return None
        worst = (min if better == MORE else max)(there, key=lambda row: row["rate"]["median"])
        rate = worst["rate"]
        sides = f"{worst['store']}, {worst['batch']} a claim [{rate['min']:.2f}..{rate['max']:.2f}]"
        return Ratio(rate["median"], f"the worst of {len(there)}: {sides}", cost=_cost(worst))

    return find


def _cost(row: Row) -> float | None:
    cpu = row.get("cpu")
    return None if cpu is None else float(cpu["median"])


def _backlog(size: str) -> Find:
    return of_rows("dispatch_rates", "ratios", lambda row: row["name"].startswith(f"backlog {size} to "))


def _grows(report: Row) -> Ratio | None:
    """The time of one more update of a long run to that of a short one; the worse store counts."""
    there = [
        row
        for row in (report.get("sdk") or {}).get("figures", ())
        if row["system"] in BOTH and re.search(r"10,000 to 10 events: time$", row["measure"])
    ]
    if not there:
        return None
    worst = max(there, key=lambda row: row["value"]["median"])
    return Ratio(worst["value"]["median"], f"the worst of {len(there)}: {worst['system']}")


def _beside(crowd: str) -> Find:
    def find(report: Row) -> Ratio | None:
        there = [row for row in report.get("beside") or () if row["crowd"] == crowd]
        if not there:
            return None
        worst = min(there, key=lambda row: row["rate"]["median"])
        rate = worst["rate"]
        sides = f"{worst['store']}, {worst['size']:,} [{rate['min']:.2f}..{rate['max']:.2f}]"
        return Ratio(rate["median"], f"the worst of {len(there)}: {sides}", cost=_cost(worst))

    return find


def _keys(report: Row) -> Ratio | None:
    wanted = of_rows("dispatch_rates", "ratios", lambda row: row["name"].startswith("1,000,000 keys to "))
    return wanted(report)


# The targets


def _same(
    number: int, measure: str, against: str, bounds: Bounds, key: str, ours: Sequence[str], peer: str
) -> Iterator[Line]:
    """A line for each of our stores."""
    for own in ours:
        store = own.removeprefix("penstock, ")
        yield Line(number, f"{measure}, {store}", against, bounds, of_peers(own, key, (peer,)), own, key)


def _any(number: int, measure: str, bounds: Bounds, ours: str, key: str) -> Line:
    """A line against DBOS on the store where it is at its best."""
    store = ours.removeprefix("penstock, ")
    find = of_peers(ours, key, DBOS_ANY)
    return Line(number, f"{measure}, {store}", "DBOS at its best", bounds, find, ours, key)


def _lines() -> Iterator[Line]:
    one, many = "standalone tasks end to end, one call each", "standalone tasks end to end, batches of 100"
    yield from _same(1, one, "PgQueuer", Bounds(1.3, 2.5), "tasks", (POSTGRES,), "pgqueuer")
    yield from _same(2, one, "Procrastinate", Bounds(4, 7), "tasks", (POSTGRES,), "procrastinate")
    yield from _same(2, one, "DBOS, PostgreSQL", Bounds(5, 10), "tasks", (POSTGRES,), "dbos, postgres")
    yield from _same(2, one, "horsies", Bounds(10, 20), "tasks", (POSTGRES,), "horsies")
    yield from _same(
        3, many, "PgQueuer, batches of 100", Bounds(0.8, 1.5), "batches", (POSTGRES,), "pgqueuer"
    )
    yield from _same(4, "drain of a backlog", "PgQueuer", Bounds(0.8, 1.3), "drain", (POSTGRES,), "pgqueuer")
    yield from _same(5, one, "DBOS, SQLite", Bounds(10, 20), "tasks", (SQLITE,), "dbos, sqlite")
    yield from _same(6, one, "Temporal dev server", Bounds(20, 35), "tasks", (SQLITE,), TEMPORAL)
    yield from _same(7, one, "Dramatiq", Bounds(1.1, 2), "tasks", (SQLITE,), "dramatiq")
    yield from _same(7, one, "Celery", Bounds(3, 5), "tasks", (SQLITE,), "celery")
    yield from _workflow_lines()
    yield from _idle_lines()
    yield from _own_lines()


def _workflow_lines() -> Iterator[Line]:
    first, fifth = "workflows of 1 activity, 100 in flight", "workflows of 5 activities, 100 in flight"
    yield from _same(8, first, "Temporal dev server", Bounds(8, 18), "workflows_1", (SQLITE,), TEMPORAL)
    yield _any(9, first, Bounds(3.5, 7), SQLITE, "workflows_1")
    yield from _same(10, fifth, "Temporal dev server", Bounds(7, 16), "workflows_5", (SQLITE,), TEMPORAL)
    yield _any(10, fifth, Bounds(4, 8), SQLITE, "workflows_5")
    yield _any(11, first, Bounds(3, 6), POSTGRES, "workflows_1")
    yield _any(11, fifth, Bounds(3, 6), POSTGRES, "workflows_5")
    late = "workflow p99, 1 activity, 100 in flight"
    bounds = Bounds(0.15, 0.05, LESS)
    yield from _same(12, late, "Temporal dev server", bounds, "workflows_1_p99", (SQLITE,), TEMPORAL)
    queued = of_peers(SQLITE, "workflows_1_p99", ("dbos, postgres",), "queued_1_p99")
    bounds = Bounds(0.4, 0.15, LESS)
    yield Line(12, f"{late}, sqlite", "DBOS, queued", bounds, queued, SQLITE, "workflows_1_p99")


def _idle_lines() -> Iterator[Line]:
    result, start = "idle: send to result, p50", "idle: send to first line, p50"
    yield from _same(13, result, "Celery", Bounds(1.5, 1.0, LESS), "result_p50", BOTH, "celery")
    yield from _same(13, result, "Temporal dev server", Bounds(0.3, 0.2, LESS), "result_p50", BOTH, TEMPORAL)
    yield from _same(14, start, "PgQueuer", Bounds(1.3, 0.9, LESS), "start_p50", BOTH, "pgqueuer")
    for size in ("100,000", "1,000,000"):
        against = f"itself at a backlog of 1,000 (now {size})"
        yield Line(15, "dispatch rate", against, Bounds(0.8, 0.9), _backlog(size))
    spent = "CPU for each standalone task, all processes"
    yield from _same(16, spent, "PgQueuer", Bounds(0.8, 0.5, LESS), "task_cpu", BOTH, "pgqueuer")
    begun = "worker: process start to first task"
    yield from _same(17, begun, "PgQueuer", Bounds(1.2, 0.8, LESS), "first_task", BOTH, "pgqueuer")
    memory, idle = Bounds(1.0, 0.7, LESS), Bounds(1.0, 0.5, LESS)
    yield from _same(18, "worker: memory", "Temporal SDK", memory, "worker_memory", (SQLITE,), TEMPORAL)
    yield from _same(18, "worker: idle CPU", "Procrastinate", idle, "worker_cpu", BOTH, "procrastinate")
    memory = Bounds(0.4, 0.25, LESS)
    yield from _same(
        19, "server: memory", "Temporal dev server", memory, "server_memory", (SQLITE,), TEMPORAL
    )
    yield from _same(19, "server: idle CPU", "Temporal dev server", idle, "server_cpu", (SQLITE,), TEMPORAL)


def _own_lines() -> Iterator[Line]:
    fair = of_rows("dispatch_rates", "ratios", lambda row: row["name"].startswith("fairness on to off"))
    every = of_rows("admission", "ratios", lambda row: row["target"] is not None and row["part"] == "claim")
    yield Line(20, "dispatch rate, fairness over 100 keys", "itself without", Bounds(0.8, 0.9), fair)
    yield Line(20, "dispatch rate, every limit set", "itself without", Bounds(0.75, 0.85), every)
    more = "one more event of a cached run of 10,000"
    yield Line(21, more, "itself at 10 events", Bounds(1.5, 1.2, LESS), _grows)
    flat, without = Bounds(0.8, 0.9), "itself without"
    yield Line(22, "rate beside 1,000,000 closed workflows", without, flat, _beside("closed workflows"))
    yield Line(22, "dispatch rate over 1,000,000 fairness keys", "itself with one", flat, _keys)
    yield Line(22, "rate beside 100,000 sleeping timers", without, flat, _beside("sleeping timers"))
    yield Line(22, "rate beside 2,000 idle pollers", without, flat, _beside("idle pollers"))


LINES = tuple(_lines())
