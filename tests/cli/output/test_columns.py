"""Declared columns of tables and lines of facts."""

from __future__ import annotations

import pytest

from penstock.cli.output.columns import columns, lookup
from penstock.cli.output.screen import Screen, ScreenCell


def test_a_column_is_a_label_with_a_field_and_a_format() -> None:
    first, second, third = columns("task=task_id:name, task queue, held by=live.owner")
    assert first == ("task", "task", "task_id", "name")
    assert second == ("task queue", "task_queue", "task_queue", "")
    assert third == ("held by", "held_by", "live.owner", "")


def test_a_missing_object_on_the_way_to_a_field_is_no_value() -> None:
    assert lookup({"live": {"owner": "ada"}}, "live.owner") == "ada"
    assert lookup({"live": None}, "live.owner") is None
    assert lookup({}, "live.owner") is None


def test_cells_are_values_that_are_formatted_or_cells_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "t-1", "state": "ready"}, {"id": "t-2"}]
    Screen().rows(rows, "task=id:name, state:status, note", note=lambda row: ScreenCell(f"about {row['id']}"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["TASK", "STATE", "NOTE"],
        ["t-1", "ready", "about", "t-1"],
        ["t-2", "-", "about", "t-2"],
    ]


def test_without_rows_only_the_message_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().rows([], "task=id:name", "Tasks", empty="No tasks yet.")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "No tasks yet.\n")


def test_facts_without_a_value_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().fields({"sdk": "1.0", "namespace": None}, "SDK=sdk, namespace")
    assert capsys.readouterr().out.split() == ["SDK", "1.0"]
