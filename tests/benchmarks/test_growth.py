"""How fast something grows, read off samples of a soak, and what several servers do more than one."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.client_processes import Crew
from benchmarks.growth import slope_per_hour
from benchmarks.several_servers import Section, _row
from benchmarks.soak import Sample, Soak
from benchmarks.stands import Ground, StoreName


def test_what_grows_evenly_grows_by_as_much_an_hour():
    assert slope_per_hour([(0, 10.0), (1800, 11.0), (3600, 12.0)]) == pytest.approx(2.0)


def test_what_only_swings_does_not_grow():
    assert slope_per_hour([(0, 10.0), (10, 11.0), (20, 10.0)]) == pytest.approx(0.0)


@pytest.mark.parametrize("points", [[], [(0, 5.0)], [(3, 5.0), (3, 6.0)]])
def test_one_moment_says_nothing_of_growth(points):
    assert slope_per_hour(points) == 0


def test_several_servers_are_compared_with_one_round_by_round_and_waits_are_shares():
    def section(tasks: int, **waits: int) -> Section:
        return Section(tasks, 2.0, {"servers": 1.5, "database": 0.5, "clients": 0.25}, Counter(waits), 1.0)

    one = [section(100), section(200)]
    two = [section(150, runs=3, locked=1), section(400)]
    found = _row("activities", 2, two, one)
    assert found["per_second"] == {"median": 137.5, "min": 75.0, "max": 200.0}
    assert found["to_one"] == {"median": 1.75, "min": 1.5, "max": 2.0}
    assert found["waits"] == {"runs": 0.75, "locked": 0.25}
    assert found["cores"]["servers"]["median"] == 1.5


def test_a_soak_tells_growth_after_it_has_settled_and_what_each_task_leaves(tmp_path):
    samples = [
        Sample(seconds, 100 * number, {"server memory, MiB": memory, "server open files": 9.0})
        for number, (seconds, memory) in enumerate([(0, 10.0), (1800, 20.0), (3600, 20.0), (7200, 20.0)])
    ]
    soak = Soak(Ground(tmp_path, Crew(), None), print, 120)
    memory, files = soak._rows(StoreName.SQLITE, samples)
    assert (memory["first"], memory["settled"], memory["last"], memory["per_hour"]) == (10.0, 20.0, 20.0, 0.0)
    assert memory["bytes_each"] == round(10 * 2**20 / 300, 1)
    assert (files["per_hour"], files["bytes_each"]) == (0.0, None)
