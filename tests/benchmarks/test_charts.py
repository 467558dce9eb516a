"""Pictures of figures: they can be read aloud, and their bars are as long as what they stand for."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.charts import CHARTS, Chart, draw, picture
from tests.benchmarks.test_targets import figure

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
