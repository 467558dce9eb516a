"""Merged writes: only independent ones, each with its own values, in order."""

from __future__ import annotations

import itertools
import re

import pytest

from penstock.stores.migrations.registry import migrations
from penstock.stores.sql import statement_merger
from penstock.stores.sql.catalogue import Dialect, Statement, catalogue
from penstock.stores.sql.statement_merger import (
    Rows,
    are_mergeable,
    batches,
    merged,
    parameters_for,
    values_of,
)

POSTGRES = catalogue(Dialect.POSTGRES)
START = ("insert_run", "append_event", "insert_activity", "insert_task", "count_added", "join_lane")
"""The writes of the start of an activity, in the order of execution."""


def statements(*names: str) -> list[Statement]:
    return sorted((POSTGRES[name] for name in names), key=lambda each: each.rank)


def names_of(batch: list[tuple[Statement, list[tuple[object, ...]]]]) -> list[str]:
    return [statement.name for statement, _ in batch]


def test_the_writes_of_a_start_are_one_statement():
    [batch] = batches((each, [()]) for each in statements(*START))
    assert sorted(names_of(batch)) == sorted(START)


@pytest.mark.parametrize(
    ("one", "other"), [("save_task", "insert_task"), ("join_lane", "leave_lane"), ("save_run", "insert_run")]
)
def test_what_changes_the_same_table_goes_one_after_the_other(one: str, other: str):
    parts = list(batches((each, [()]) for each in statements(one, other)))
    assert [len(part) for part in parts] == [1, 1]


def test_a_statement_that_reads_what_another_changes_does_not_travel_with_it():
    """A new lane takes its base from the virtual clock of its level."""
    parts = list(batches((each, [()]) for each in statements("join_lane", "save_clock")))
    assert len(parts) == 2


def test_a_statement_that_looks_at_rows_that_others_change_goes_first():
    """While this waits for the lock on the key, a claim may block its lanes: only a new snapshot finds them."""
    parts = list(batches((each, [()]) for each in statements("uncount_key", "release_lanes", "count_added")))
    assert [names_of(part) for part in parts] == [["uncount_key"], ["release_lanes", "count_added"]]


READING = {
    "join_lane",
    "rejoin_lane",
    "settle_lane",
    "settle_cost",
    "drop_lane",
    "insert_payload_use",
    "check_released_payloads",
}
"""
They read another table too: its rows are locked by this transaction, or were committed before it began and stay for a
grace (external payloads), or may be slightly outdated.
"""


def test_no_other_write_goes_by_what_another_table_says():
    """A statement added here must be marked `new snapshot`, or it may see rows from before a merged write waited."""
    tables = re.compile(r"\b(?:INTO|UPDATE|FROM|JOIN|USING)\s+(?!unnest\b)([a-z]\w*)")
    parts = [each for each in POSTGRES.values() if are_mergeable([each])]
    assert {each.name for each in parts if len(set(tables.findall(each.sql))) > 1} == READING


def test_a_statement_that_is_sent_alone_is_no_part_of_another():
    alone = next(each for each in POSTGRES.values() if each.unmerged and not each.returns_rows)
    assert not are_mergeable([alone])
    parts = list(batches([(POSTGRES["insert_run"], [()]), (alone, [()])]))
    assert len(parts) == 2


def test_every_part_takes_the_values_behind_those_of_the_parts_before_it():
    parts = statements("append_event", "insert_activity", "join_lane")
    sql = merged(tuple(parts), "SELECT pg_notify($1, $2)")
    taken = sum(each.parameters for each in parts)
    numbers = [int(each) for each in re.findall(r"\$(\d+)", sql)]
    assert set(numbers) == set(range(1, taken + 3))
    assert sql.endswith(f"SELECT pg_notify(${taken + 1}, ${taken + 2})")
    rows = [(each, [tuple(range(len(each.takes)))]) for each in parts]
    assert len(values_of(rows)) == taken


def test_rows_of_many_columns_are_given_as_rows_and_others_as_columns():
    event, lane = POSTGRES["append_event"], POSTGRES["join_lane"]
    events: Rows = [("run", 1, "Started", "{}", 5, None), ("run", 2, "Ended", "{}", 6, "task")]
    assert parameters_for(event, events) == [events]
    assert parameters_for(lane, [(1, 5, "a", 1000), (1, 5, "b", 2000)]) == [
        [1, 1],
        [5, 5],
        ["a", "b"],
        [1000, 2000],
    ]


def test_every_type_of_rows_is_in_the_schema_as_its_name_spells_it():
    """A statement with other columns has another composite type, which a migration adds."""
    schema = "".join(each.sql for each in migrations(Dialect.POSTGRES))
    made = {
        found[1]: "".join(re.findall(r"\bc\d+ (T|B)", found[2])).lower()
        for found in re.finditer(r"CREATE TYPE (row_\w+) AS \(([^)]*)\)", schema)
    }
    assert all(name == f"row_{kinds}" for name, kinds in made.items())
    assert {each.row_type for each in POSTGRES.values() if each.row_type} <= set(made)


def test_parts_are_listed_backwards_since_they_are_carried_out_from_the_last_to_the_first():
    first, last = statements("append_event", "insert_activity")
    sql = merged((first, last))
    assert sql.index("w1 AS") < sql.index("w0 AS")
    assert sql.index(f"w0 AS ({first.sql[:20]}") > 0


def test_a_batch_is_usual_once_it_has_come_often(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statement_merger, "HOT_AFTER", 2)
    hot_batches, start = statement_merger.HotBatches(), tuple(statements(*START))
    assert [hot_batches.is_hot(start) for _ in range(4)] == [False, False, True, True]


def test_batches_that_always_differ_are_never_usual(monkeypatch: pytest.MonkeyPatch):
    """Each would have to be prepared, and would evict a hot one."""
    monkeypatch.setattr(statement_merger, "HOT_AFTER", 2)
    hot_batches = statement_merger.HotBatches()
    every = [*itertools.combinations(POSTGRES.values(), 2)][: statement_merger.TRACKED_MAX + 1]
    assert not any(hot_batches.is_hot(each) for _ in range(5) for each in every)
