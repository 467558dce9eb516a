"""What a lease records as the cause of the wait that it ends."""

from __future__ import annotations

from penstock.core.model import QueueId, RunId, Task, TaskId, TaskKind, TaskState
from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.scheduling.leases import SeenLimit, Sightings, grant

NOW = 10_000


def held_by(
    ready_at: int,
    open_for: int | None,
    limit_at: int | None = None,
    available_at: int = 0,
    limited: bool = False,
) -> str:
    task = Task(
        TaskId("r-1"), QueueId(1), "default", "q", TaskKind.ACTIVITY, RunId("r"), None, "charge", None, 3, "",
        TaskState.READY, available_at, ready_at,
    )  # fmt: skip
    limit = None if limit_at is None else SeenLimit(HoldReason.QUEUE_RATE, limit_at)
    seen = None if open_for is None else Sightings([open_for], 5_000, limit)
    return grant(task, "w", "1.x", NOW, 60_000, None, seen=seen, limited=limited).held_by


def test_a_limit_that_was_in_the_way_while_the_task_was_ready_held_it_back() -> None:
    assert held_by(6_000, 5_000, limit_at=7_000) == "queue_rate"


def test_a_limit_that_was_in_the_way_before_the_task_came_says_nothing_about_it() -> None:
    assert held_by(8_000, 5_000, limit_at=7_000) == ""


def test_a_task_in_backoff_is_held_back_only_once_it_is_due() -> None:
    assert held_by(6_000, 5_000, limit_at=7_000, available_at=9_000) == ""


def test_a_task_that_was_ready_before_its_poll_came_waited_for_a_free_slot() -> None:
    assert held_by(8_000, 1_000) == "slots"
    assert held_by(8_000, 5_000) == ""


def test_a_server_that_was_just_started_cannot_know_that_no_limit_was_in_the_way() -> None:
    assert held_by(4_000, 1_000, limited=True) == ""
    assert held_by(6_000, 1_000, limited=True) == "slots"
    assert held_by(4_000, 1_000) == "slots"


def test_what_no_server_saw_is_not_guessed() -> None:
    assert held_by(0, None) == ""
