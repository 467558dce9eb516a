"""Every row of the fault catalogue from F57 to F74 is a test: one that carries the row as its mark."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROWS = [f"F{number}" for number in range(57, 75)]
ALSO = {
    "F57": ("acceptance/matching/test_leases.py", "test_a_repeated_report_gets_the_same_receipt"),
    "F58": ("engine/workflows/test_workflow_reports.py", "test_another_outcome_for_the_same_lease_conflicts"),
    "F59": (
        "faults/processes/test_absent_workers.py",
        "test_the_report_of_a_worker_that_froze_past_its_lease_is_refused",
    ),
    "F60": ("engine/workflows/test_workflow_reports.py", "test_a_lapsed_lease_is_never_brought_back"),
    "F61": ("acceptance/matching/test_leases.py", "test_a_lease_that_is_renewed_is_not_granted_again"),
    "F62": ("engine/workflows/test_workflow_reports.py", "test_another_namespace_does_not_see_the_task"),
    "F64": ("engine/workflows/test_starts.py", "test_an_id_in_use_is_given_away_once"),
    "F65": ("server/test_bad_input.py", "test_a_poll_asks_for_1_to_100_tasks"),
    "F67": ("acceptance/messaging/test_queries.py", "test_queries_beyond_the_bound_are_told_to_come_back"),
    "F68": (
        "acceptance/messaging/test_queries.py",
        "test_without_an_active_worker_a_query_is_refused_at_once",
    ),
    "F69": (
        "engine/workers/test_worker_registry.py",
        "test_the_code_of_an_active_worker_does_not_change_under_its_id",
    ),
}
"""Tests that were there before, about the same in another light."""


def marks(tree: ast.AST) -> Iterator[str]:
    """The rows that a file names in `pytest.mark.fault("…")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


@functools.cache
def proofs() -> dict[str, set[Path]]:
    found: dict[str, set[Path]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text("utf-8")
        if "mark.fault" in text:
            for row in marks(ast.parse(text)):
                found[row].add(path)
    return found


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_test(row: str) -> None:
    assert proofs()[row], f"no test is marked with {row}"


def test_no_mark_names_a_row_that_is_not_there() -> None:
    assert set(proofs()) <= {f"F{number:02}" for number in range(1, 100)}


@pytest.mark.parametrize("row", ALSO)
def test_an_older_test_of_a_row_is_still_there(row: str) -> None:
    path, name = ALSO[row]
    assert name in (TESTS / path).read_text("utf-8")
