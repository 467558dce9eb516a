"""Generated ids."""

from __future__ import annotations

import time

import pytest

from penstock.sdk.clients.interceptors import new_id


def stop_at(monkeypatch: pytest.MonkeyPatch, at_ms: int) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: at_ms * 1_000_000)


def test_ids_sort_by_the_time_at_which_they_are_made(monkeypatch: pytest.MonkeyPatch):
    """So that rows written together are adjacent: an index then appends new ids at its end."""
    made = []
    for at_ms in (1, 999, 1_000_000, 1_700_000_000_000, 1_700_000_000_001):
        stop_at(monkeypatch, at_ms)
        made.append(new_id())
    assert made == sorted(made)


def test_no_two_ids_of_one_moment_are_alike(monkeypatch: pytest.MonkeyPatch):
    stop_at(monkeypatch, 1_700_000_000_000)
    made = {new_id() for _ in range(10_000)}
    assert len(made) == 10_000
    assert {len(each) for each in made} == {32}
