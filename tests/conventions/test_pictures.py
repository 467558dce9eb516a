"""The pictures of the documentation are made by programs, and are what those programs make."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock.core.limits.policies import DispatchOrder

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
PROGRAMS = sorted(PICTURES.glob("*.py"))

each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)


def run(program: Path) -> dict[str, Any]:
    return runpy.run_path(str(program))


def test_every_picture_has_a_program() -> None:
    assert {each.stem for each in PICTURES.glob("*.svg")} == {each.stem for each in PROGRAMS} != set()


@each_program
def test_the_picture_that_is_kept_is_the_one_that_its_program_makes(program: Path) -> None:
    assert program.with_suffix(".svg").read_text() == run(program)["picture"](), "run `make docs`"


@each_program
def test_a_picture_can_be_read_aloud(program: Path) -> None:
    drawing = ElementTree.parse(program.with_suffix(".svg")).getroot()
    for part in ("title", "desc"):
        assert drawing.findtext(f"{{http://www.w3.org/2000/svg}}{part}")


def test_every_task_of_the_picture_of_shares_goes_once_in_either_order() -> None:
    shares = run(PICTURES / "shares.py")
    for order in DispatchOrder:
        served = [each.key for each in shares["play"](order)]
        assert {key: served.count(key) for key in shares["TASKS"]} == shares["TASKS"]
