"""The collector in a process that serves."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _told(program: str) -> str:
    command = (sys.executable, "-c", f"import gc\nfrom penstock.collecting import settle\n{program}")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_what_was_there_before_is_not_looked_at_again() -> None:
    assert _told("kept = [[]]; settle(); print(any(each is kept for each in gc.get_objects()))") == "False"


def test_garbage_in_circles_is_still_found_afterwards() -> None:
    program = (
        "import weakref\nclass Loop: pass\nsettle()\nloop = Loop(); loop.self = loop\n"
        "gone = weakref.ref(loop); del loop\nfor _ in range(30_000): Loop().__dict__\n"
        "kept = [[] for _ in range(30_000)]\nprint(gone() is None)"
    )
    assert _told(program) == "True"


@pytest.mark.parametrize(
    ("told", "kept"),
    [("0, 10, 10", "(0, 10, 10)"), ("50_000, 5, 5", "(50000, 5, 5)"), ("700, 7, 8", "(10000, 7, 8)")],
)
def test_a_collector_that_is_off_or_looks_less_often_stays_as_it_is(told: str, kept: str) -> None:
    assert _told(f"gc.set_threshold({told}); settle(); print(gc.get_threshold())") == kept
