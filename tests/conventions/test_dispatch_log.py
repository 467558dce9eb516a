"""The measures by which other tests judge what was handed out."""

from __future__ import annotations

from typing import Any

from tests.support.dispatch_log import counts, found_by_rate, furthest_from_share, most_over_rate, positions


def handed_out(*moments: tuple[str, float]) -> list[dict[str, Any]]:
    """Tasks of a key, each at a second of one minute."""
    return [
        {"fairness_key": key or None, "lease_expires_at": f"2026-01-01T00:00:{second:06.3f}Z"}
        for key, second in moments
    ]


def test_the_share_of_a_key_is_measured_at_its_worst():
    assert furthest_from_share(["a", "b", "a", "b"], "a", 0.5) == 0.5
    assert furthest_from_share(["b", "b", "b", "a"], "a", 0.5) == 1.5


def test_tasks_without_a_key_are_those_of_the_empty_key():
    tasks = handed_out(("", 0), ("a", 0), ("", 1))
    assert counts(tasks) == {"": 2, "a": 1}
    assert positions("", tasks) == [0, 2]


def test_a_rate_is_kept_when_no_interval_holds_more_than_its_burst_and_what_came_since():
    kept = handed_out(("a", 0), ("a", 0), ("a", 0.5), ("a", 1))
    assert most_over_rate(kept, rate=2, burst=2) == 0
    assert most_over_rate(handed_out(("a", 0), ("a", 0), ("a", 0.499)), rate=2, burst=2) > 0
    assert most_over_rate(handed_out(("a", 0), ("a", 9), ("a", 9), ("a", 9)), rate=2, burst=2) == 1


def test_a_claim_must_find_what_a_bucket_holds_at_its_moment():
    claims = [
        handed_out(("a", 0), ("a", 0), ("b", 0)),
        handed_out(("a", 0.75)),
        handed_out(("a", 1), ("a", 9)),
    ]
    assert found_by_rate(claims, "a", rate=2, burst=2) == [2, 1, 1]
    assert found_by_rate([*claims, handed_out(("a", 30))], None, rate=2, burst=5) == [5, 3, 3, 5]
