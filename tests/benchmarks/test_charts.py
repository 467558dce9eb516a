"""Pictures of figures: they can be read aloud, and their bars are as long as what they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.charts import CHARTS, Chart, draw, kept, picture
from benchmarks.markdown import BEGIN, END, FIGURES, PAGE, PICTURES, NoPlace, write_docs
from tests.benchmarks.test_targets import figure

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
MORE_IS_BETTER, LESS_IS_BETTER = (
    Chart("x", "tasks", "Tasks & more", "per second", better) for better in ("more", "less")
)
ROWS = [figure("pgqueuer", "tasks", 800.0), figure("penstock, sqlite", "tasks", 1600.0)]


def bars(text: str) -> list[tuple[str, float]]:
    drawing = ElementTree.fromstring(text)
    return [
        (str(each.get("class")), float(str(each.get("width"))))
        for each in drawing.iter(f"{SVG}rect")
        if each.get("class") != "ground"
    ]


def test_bars_stand_from_the_best_to_the_worst_and_are_as_long_as_their_values():
    (first, longer), (second, shorter) = bars(picture(MORE_IS_BETTER, ROWS, "here"))
    assert (first, second) == ("ours", "theirs")
    assert longer == 2 * shorter
    assert [name for name, _ in bars(picture(LESS_IS_BETTER, ROWS, "here"))] == ["theirs", "ours"]


def test_a_picture_can_be_read_aloud():
    drawing = ElementTree.fromstring(picture(MORE_IS_BETTER, ROWS, "2 cores"))
    assert drawing.findtext(f"{SVG}title") == "Tasks & more"
    told = drawing.findtext(f"{SVG}desc")
    assert told == "per second, more is better: penstock, sqlite 1,600; pgqueuer 800."
    assert "2 cores" in "".join(drawing.itertext())


def test_nothing_is_drawn_of_what_was_not_measured(tmp_path):
    assert draw({}, tmp_path) == []
    (only,) = draw({"peers": {"figures": ROWS}}, tmp_path)
    assert only.name == "tasks.svg"


def test_every_chart_has_a_file_of_its_own():
    assert len({chart.file for chart in CHARTS}) == len(CHARTS)


def full(row: dict[str, Any]) -> dict[str, Any]:
    """A figure with all that tables show of it."""
    return row | {"others_percent": None, "load": {"median": 1.0, "min": 1.0, "max": 1.0}}


REPORT = {
    "environment": {"cores": 2, "date": "2026-11-16"},
    "peers": {"systems": [], "missing": [], "figures": [full(row) for row in ROWS]},
}


def test_pictures_and_tables_go_between_two_marks_of_the_page_as_often_as_one_likes(tmp_path):
    target = tmp_path / PAGE
    target.write_text(f"# Speed\n\n{BEGIN}\nold\n{END}\n\n## More\n")
    for _ in range(2):
        write_docs(REPORT, tmp_path)
        text = target.read_text()
        assert text.startswith(f"# Speed\n\n{BEGIN}\n\n## Beside peers")
        assert text.endswith(f"\n{END}\n\n## More\n")
        assert "old" not in text
        assert f"]({PICTURES}/tasks.svg)" in text
        assert "### Standalone tasks, per s\n\n| system" in text


def test_a_page_without_marks_is_left_as_it_is(tmp_path):
    (tmp_path / PAGE).write_text("# Speed\n")
    with pytest.raises(NoPlace, match="has no lines"):
        write_docs(REPORT, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [PAGE]


def test_what_is_kept_of_a_report_draws_the_same_pictures(tmp_path):
    first, again = (draw(report, tmp_path / name) for name, report in (("a", REPORT), ("b", kept(REPORT))))
    assert [path.read_text() for path in first] == [path.read_text() for path in again] != []


def test_the_pictures_of_the_documentation_are_those_that_its_figures_make(tmp_path):
    assert BEGIN in (DOCS / PAGE).read_text()
    pictures = {path.name: path.read_text() for path in (DOCS / PICTURES).glob("*.svg")}
    figures = DOCS / PICTURES / FIGURES
    drawn = draw(json.loads(figures.read_text()), tmp_path) if figures.exists() else []
    assert {path.name: path.read_text() for path in drawn} == pictures, (
        "run `python -m benchmarks --merge --docs docs`"
    )
