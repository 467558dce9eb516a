"""What operators read about the settings comes from the catalogue."""

from __future__ import annotations

from penstock.settings import describe, load, reference_markdown
from penstock.settings.catalogue import CATALOGUE, FILE_VARIANTS


def test_every_setting_has_one_row_in_the_description():
    rows = describe(load({"DW_PORT": "9000"}))
    assert [row.name for row in rows] == [setting.name for setting in CATALOGUE]
    port = next(row for row in rows if row.name == "DW_PORT")
    assert (port.value, port.source, port.default) == ("9000", "environment", "8080")
    assert all(row.default and row.description for row in rows)


def test_the_description_shows_worked_out_defaults_with_their_rule():
    rows = {row.name: row for row in describe(load({"DW_WORKER_POLL_TIMEOUT": "50"}))}
    stale = rows["DW_WORKER_STALE_AFTER_SECONDS"]
    assert (stale.value, stale.source) == ("100", "default")
    assert stale.default == "twice DW_WORKER_POLL_TIMEOUT, at least 60"


def test_flags_on_the_command_line_are_named_as_the_source():
    rows = {row.name: row for row in describe(load({}, flags={"DW_HOST": "::1"}))}
    assert (rows["DW_HOST"].value, rows["DW_HOST"].source) == ("::1", "command line")


def test_the_reference_page_has_every_setting_once_with_its_bounds_and_default():
    page = reference_markdown()
    for setting in CATALOGUE:
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{setting.name}` |")]
        assert setting.description in row
        assert setting.kind.expects in row
        assert (setting.default or setting.default_note) in row
    for name in FILE_VARIANTS:
        assert f"`{name}`" in page
    assert "`DW_ENV`" in page
    assert page.endswith("\n")


def test_every_table_of_the_reference_page_has_four_columns():
    rows = [line for line in reference_markdown().splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {5}
