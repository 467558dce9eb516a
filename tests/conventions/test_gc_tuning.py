"""The collector in a process that serves."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOP = "import weakref\nclass Loop:\n  def __init__(self): self.me = self\n"


def _told(program: str) -> str:
    command = (
        sys.executable,
        "-c",
        f"import gc\nfrom penstock.gc_tuning import frozen_startup_heap\n{program}",
    )
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_what_was_there_before_is_not_looked_at_again() -> None:
    program = "kept = [[]]\nwith frozen_startup_heap(): print(any(each is kept for each in gc.get_objects()))"
    assert _told(program) == "False"


def test_garbage_in_circles_is_still_found_meanwhile() -> None:
    program = (
        f"{LOOP}with frozen_startup_heap():\n  loop = Loop(); gone = weakref.ref(loop); del loop\n"
        "  for _ in range(30_000): Loop.__dict__\n"
        "  kept = [[] for _ in range(30_000)]\n  print(gone() is None)"
    )
    assert _told(program) == "True"


def test_garbage_that_was_there_before_does_not_stay_for_good() -> None:
    program = (
        f"{LOOP}gc.disable(); loop = Loop(); gone = weakref.ref(loop); del loop; gc.enable()\n"
        "with frozen_startup_heap(): gc.collect(); print(gone() is None)"
    )
    assert _told(program) == "True"


def test_what_served_once_can_be_found_when_it_has_ended() -> None:
    """A program may run its workers again and again, each time with new ones."""
    program = (
        f"{LOOP}gone = []\nfor _ in range(3):\n  worker = Loop(); gone.append(weakref.ref(worker))\n"
        "  with frozen_startup_heap(): del worker\ngc.collect(); print([each() for each in gone])"
    )
    assert _told(program) == "[None, None, None]"


def test_afterwards_the_collector_looks_as_often_as_before() -> None:
    program = (
        "gc.set_threshold(500, 7, 8)\ntry:\n  with frozen_startup_heap(): raise ValueError\n"
        "except ValueError: print(gc.get_threshold(), gc.get_freeze_count())"
    )
    assert _told(program) == "(500, 7, 8) 0"


@pytest.mark.parametrize(
    ("told", "kept"),
    [("0, 10, 10", "(0, 10, 10)"), ("50_000, 5, 5", "(50000, 5, 5)"), ("700, 7, 8", "(10000, 7, 8)")],
)
def test_a_collector_that_is_off_or_looks_less_often_stays_as_it_is(told: str, kept: str) -> None:
    assert _told(f"gc.set_threshold({told})\nwith frozen_startup_heap(): print(gc.get_threshold())") == kept
