"""The laws about what waits, on journals that the engine wrote, and on the same journals with a fault in them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from penstock.core.verify.check import check
from penstock.core.verify.findings import OF_LOAD, Findings, Law
from penstock.core.verify.journal import (
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    SettingChanged,
    SettingsChanged,
    TaskReady,
    WorkerChanged,
)
from penstock.simulator.model_file import generate
from penstock.wire.operations.journal import read_journal
from tests.simulator.loads import backlog, journal_of, model, workers

NOON = 1_800_000_000_000
Journal = tuple[JournalLine, ...]


@cache
def shared() -> Journal:
    """Two keys of one level with weights 3 and 1, and urgent tasks before them, one after the other for minutes."""
    return _journal(
        arrivals=[backlog(60, "a", takes="2s"), backlog(60, "b", takes="2s"), _urgent()],
        workers=[workers(slots=2)],
        queues={"q": {"weights": {"a": 3}, "aging_wait_seconds": 10, "aging_every": 4}},
    )


@cache
def strict() -> Journal:
    """As `shared`, without aging: urgent tasks always go first."""
    return _journal(arrivals=[backlog(20, takes="2s"), _urgent()], workers=[workers(slots=1)])


def _urgent() -> dict[str, Any]:
    return backlog(40, takes="2s", priority=2)


def _journal(**fields: Any) -> Journal:
    lines = asyncio.run(journal_of(generate(model(**fields), 1, 1_000)))
    return tuple(read_journal(lines, "simulated"))


def found(lines: Iterable[JournalLine]) -> Findings:
    return check(lines)[0]


def grants_of(journal: Journal, **fields: Any) -> list[LeaseGranted]:
    grants = [line for line in journal if isinstance(line, LeaseGranted)]
    return [each for each in grants if all(getattr(each, name) == value for name, value in fields.items())]


def test_a_journal_of_the_engine_is_clean_and_every_law_was_judged() -> None:
    book = found(shared())
    assert not book.findings
    assert {law for law in OF_LOAD if book.checked[law]} == OF_LOAD


def test_turns_that_several_starving_levels_share_are_no_finding() -> None:
    first, second, third = (backlog(60, takes="2s", priority=level) for level in (2, 5, 8))
    journal = _journal(
        arrivals=[first, second, third],
        workers=[workers(slots=2)],
        queues={"q": {"aging_wait_seconds": 10, "aging_every": 3}},
    )
    book = found(journal)
    assert book.checked[Law.BOUNDED_WAITING]
    assert not book.findings


def _exchanged(journal: Journal, one: LeaseGranted, other: LeaseGranted) -> Journal:
    """The journal as if each of two tasks had been given in the place of the other."""
    names = {one.task_id: other, other.task_id: one}

    def of(line: JournalLine) -> JournalLine:
        if not isinstance(line, LeaseGranted | LeaseEnded) or line.task_id not in names:
            return line
        instead = names[line.task_id]
        line = replace(line, task_id=instead.task_id, lease=instead.lease)
        if isinstance(line, LeaseGranted):
            return replace(line, key=instead.key, level=instead.level, weight=instead.weight)
        return line

    return tuple(map(of, journal))


def test_a_task_that_is_forgotten_in_its_lane_is_found() -> None:
    early, late = backlog(10, takes="2s"), backlog(10, takes="2s", starts="5s")
    journal = _journal(arrivals=[early, late], workers=[workers()])
    first, last = grants_of(journal)[5], grants_of(journal)[15]
    assert not found(journal).findings
    book = found(_exchanged(journal, first, last))
    assert book.found[Law.WORK_CONSERVING] > 0
    assert f"task {first.task_id} waits" in book.findings[0].said


def test_a_key_that_gets_more_than_its_share_is_found() -> None:
    journal = shared()
    pairs = zip(grants_of(journal, key="b")[3:9], grants_of(journal, key="a")[-8:-2], strict=True)
    for early, late in pairs:
        assert early.seq < late.seq
        journal = _exchanged(journal, early, late)
    book = found(journal)
    assert book.found[Law.FAIR_SHARES] > 0
    assert "got more than its share of 3 to 1 while key 'b' waited" in _said(book, Law.FAIR_SHARES)


def test_levels_that_starve_although_the_queue_ages_its_tasks_are_found() -> None:
    told = tuple(
        replace(line, aging=(10_000, 4)) if isinstance(line, LeaseGranted) else line for line in strict()
    )
    assert not found(strict()).found[Law.BOUNDED_WAITING], "without aging nothing is promised"
    book = found(told)
    assert book.found[Law.BOUNDED_WAITING] > 0
    assert "dispatches in a row went to levels before it" in _said(book, Law.BOUNDED_WAITING)


def _said(book: Findings, law: Law) -> str:
    return next(each.said for each in book.findings if each.law is law)


# ── By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────


def ready(seq: int, task: str, at_ms: int = NOON, **more: Any) -> TaskReady:
    return TaskReady(seq, at_ms, "default", "q", "activity", "t", task, **more)


def granted(seq: int, task: str, at_ms: int, **more: Any) -> LeaseGranted:
    fields: dict[str, Any] = {"worker_id": "w", "key": "", "level": 5, "lease": "1", "attempt": 1}
    fields |= {"namespace": "default", "task_queue": "q", "kind": "activity"}
    return LeaseGranted(seq, at_ms, task_id=task, **(fields | more))


def test_a_task_that_waits_beside_an_open_poll_is_found() -> None:
    book = found([ready(1, "x"), granted(2, "x", NOON + 9_000, poll_open_ms=20_000)])
    assert "was ready and a poll of w open for 9000 ms" in _said(book, Law.WORK_CONSERVING)


@pytest.mark.parametrize(
    "line",
    [
        granted(3, "x", NOON + 9_000, poll_open_ms=2_000),
        granted(3, "x", NOON + 3_000, poll_open_ms=20_000),
        granted(3, "x", NOON + 9_000),
    ],
    ids=["the poll is young", "the task is young", "a limit was in the way"],
)
def test_a_task_that_waits_for_a_poll_or_a_limit_is_not_found(line: LeaseGranted) -> None:
    assert not found([ready(1, "x"), line]).findings


def test_a_task_that_waits_for_a_setting_is_not_found() -> None:
    changed = SettingsChanged(
        2, NOON + 8_000, "queue:default/q/activity", 2, (SettingChanged("paused", "1", None),)
    )
    assert not found([ready(1, "x"), changed, granted(3, "x", NOON + 9_000, poll_open_ms=20_000)]).findings


def test_a_task_that_comes_back_keeps_its_place_in_its_lane() -> None:
    lines: list[JournalLine] = [
        ready(1, "x", weight=1_000),
        ready(2, "y", NOON + 4_000, weight=1_000),
        granted(3, "x", NOON + 5_000),
        LeaseEnded(4, NOON + 6_000, "x", "1", "throttled"),
        ready(5, "x", NOON + 12_000, after="x"),
        granted(6, "x", NOON + 13_000, lease="2"),
    ]
    assert not found(lines).found[Law.WORK_CONSERVING]


def _starved(**more: Any) -> list[JournalLine]:
    """Key b waits all the time after its first grant, and only key a is served."""
    lines: list[JournalLine] = [ready(n + 1, f"{key}{n}", key=key, **more) for n in range(10) for key in "ab"]
    lines = [replace(line, seq=number) for number, line in enumerate(lines, 1)]
    order = ["b0", *(f"a{n}" for n in range(9))]
    for number, task in enumerate(order):
        lines.append(granted(len(lines) + 1, task, NOON + 4_000 + number, key=task[0], weight=1_000))
    return lines


def test_a_key_that_is_never_served_again_is_found() -> None:
    assert found(_starved()).found[Law.FAIR_SHARES] > 0


SPARED: dict[str, Callable[[list[JournalLine]], list[JournalLine]]] = {
    "its tasks may not have been visible": lambda lines: [
        replace(line, at_ms=NOON + 1_500) if isinstance(line, TaskReady) and line.key == "b" else line
        for line in lines
    ],
    "tasks and workers are of several types": lambda lines: [
        replace(line, type=line.key) if isinstance(line, TaskReady) else line for line in lines
    ],
    "shares are not of dispatches": lambda lines: [
        replace(line, weight=None) if isinstance(line, LeaseGranted) else line for line in lines
    ],
    "workflow tasks may be sticky": lambda lines: [
        replace(line, kind="workflow") if isinstance(line, TaskReady | LeaseGranted) else line
        for line in lines
    ],
}


@pytest.mark.parametrize("spare", SPARED.values(), ids=list(SPARED))
def test_what_shares_are_not_promised_for_is_not_found(
    spare: Callable[[list[JournalLine]], list[JournalLine]],
) -> None:
    assert not found(spare(_starved())).found[Law.FAIR_SHARES]


def test_tasks_of_several_types_are_judged_where_all_workers_take_all_of_them() -> None:
    worker = WorkerChanged(1, NOON, "default", "w", "registered", "q", 10)
    lines = [worker, *(replace(line, seq=line.seq + 1) for line in SPARED_TYPES(_starved()))]
    assert found(lines).found[Law.FAIR_SHARES] > 0
    picky = replace(worker, activity_types=("a",))
    assert not found([picky, *lines[1:]]).found[Law.FAIR_SHARES]


SPARED_TYPES = SPARED["tasks and workers are of several types"]


def test_a_journal_without_arrivals_is_read_as_before_and_names_what_cannot_be_judged() -> None:
    old = [line for line in shared() if not isinstance(line, TaskReady | WorkerChanged | SettingsChanged)]
    book, evidence = check(old)
    assert not Counter(book.found).total()
    assert book.checked[Law.CAP] or book.checked[Law.ONE_LEASE]
    assert {*evidence.not_judged} == OF_LOAD
    assert check(shared())[1].not_judged == ()
