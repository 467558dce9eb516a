"""Which workers may take work, and how an operator sees the builds of a queue."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.model import WorkerRecord, WorkerStatus
from penstock.core.scheduling.cohorts import check_may_poll, cohort_views, is_stale, status_now
from penstock.errors import Conflict, NotFound, PenstockError, Reason
from tests.support.builders import NOW_MS, a_cohort, a_worker

WINDOW_MS = 60_000


def ask(worker: WorkerRecord | None, **changes: Any) -> WorkerRecord:
    asked: dict[str, Any] = {"task_queue": "orders", "build_id": None, "intents": {}} | changes
    return check_may_poll(worker, "worker-1", **asked)


def refusal(worker: WorkerRecord | None, **changes: Any) -> PenstockError:
    with pytest.raises(PenstockError) as refused:
        ask(worker, **changes)
    return refused.value


# ── May it poll ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_registered_worker_may_poll_its_queue():
    worker = a_worker()
    assert ask(worker) is worker


def test_an_unknown_worker_is_told_to_register():
    told = refusal(None)
    assert isinstance(told, NotFound)
    assert told.reason is Reason.WORKER_NOT_REGISTERED
    assert told.details["worker_id"] == "worker-1"


def test_a_worker_of_another_queue_is_told_both_names():
    told = refusal(a_worker(), task_queue="mail")
    assert isinstance(told, Conflict)
    assert told.reason is Reason.TASK_QUEUE_MISMATCH
    assert (told.details["registered_task_queue"], told.details["requested_task_queue"]) == ("orders", "mail")


def test_a_worker_that_polls_as_another_build_is_told_both_builds():
    told = refusal(a_worker(build_id="one"), build_id="two")
    assert told.reason is Reason.BUILD_ID_MISMATCH
    assert (told.details["registered_build_id"], told.details["requested_build_id"]) == ("one", "two")


@pytest.mark.parametrize(
    ("registered", "polled"), [("one", None), (None, "one"), ("one", "one"), (None, None)]
)
def test_builds_conflict_only_when_both_are_named(registered: str | None, polled: str | None):
    worker = a_worker(build_id=registered)
    assert ask(worker, build_id=polled) is worker


@pytest.mark.parametrize(("registered", "drained"), [("one", "one"), (None, "")])
def test_a_worker_of_a_draining_build_gets_nothing_new(registered: str | None, drained: str):
    told = refusal(
        a_worker(build_id=registered), intents={drained: a_cohort(drained, drain_intent="draining")}
    )
    assert told.reason is Reason.WORKER_DRAINING
    assert told.details["poll_status"] == "draining"
    assert told.details["task"] is None


def test_another_builds_draining_is_nobody_elses():
    worker = a_worker(build_id="two")
    assert worker is ask(worker, intents={"one": a_cohort("one", drain_intent="draining")})


def test_refusals_come_in_the_order_of_the_contract():
    drained = {"one": a_cohort("one", drain_intent="draining")}
    worker = a_worker(build_id="one")
    everything = {"task_queue": "mail", "build_id": "two", "intents": drained}
    assert refusal(None, **everything).reason is Reason.WORKER_NOT_REGISTERED
    assert refusal(worker, **everything).reason is Reason.TASK_QUEUE_MISMATCH
    assert refusal(worker, build_id="two", intents=drained).reason is Reason.BUILD_ID_MISMATCH
    assert refusal(worker, intents=drained).reason is Reason.WORKER_DRAINING


# ── Liveness ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_is_stale_when_it_was_not_heard_for_longer_than_the_window():
    worker = a_worker(status=WorkerStatus.DRAINING)
    assert not is_stale(worker, NOW_MS + WINDOW_MS, WINDOW_MS)
    assert status_now(worker, NOW_MS + WINDOW_MS, WINDOW_MS) is WorkerStatus.DRAINING
    assert is_stale(worker, NOW_MS + WINDOW_MS + 1, WINDOW_MS)
    assert status_now(worker, NOW_MS + WINDOW_MS + 1, WINDOW_MS) is WorkerStatus.STALE


# ── Rollouts ────────────────────────────────────────────────────────────────────────────────────────────


def fresh(name: str, build: str | None, age_ms: int = 0) -> WorkerRecord:
    return a_worker(name, build_id=build, heartbeat_at_ms=NOW_MS - age_ms)


def stale(name: str, build: str | None) -> WorkerRecord:
    return fresh(name, build, WINDOW_MS + 1)


def draining(build: str) -> Any:
    return a_cohort(build, drain_intent="draining")


@pytest.mark.parametrize(
    ("workers", "cohorts", "status", "counts"),
    [
        ([fresh("a", "one")], [], "active", (1, 0, 0)),
        ([fresh("a", "one"), stale("b", "one")], [], "active", (1, 0, 1)),
        ([fresh("a", "one")], [draining("one")], "draining", (0, 1, 0)),
        ([stale("a", "one")], [draining("one")], "draining", (0, 0, 1)),
        ([], [draining("one")], "draining", (0, 0, 0)),
        ([stale("a", "one")], [], "stale_only", (0, 0, 1)),
        ([stale("a", "one")], [a_cohort("one")], "stale_only", (0, 0, 1)),
        ([], [a_cohort("one")], "no_workers", (0, 0, 0)),
    ],
)
def test_a_builds_status_follows_from_its_workers_and_the_operators_intent(
    workers: list[WorkerRecord], cohorts: list[Any], status: str, counts: tuple[int, int, int]
):
    [view] = cohort_views(workers, cohorts, NOW_MS, WINDOW_MS)
    assert view.rollout_status == status
    assert (view.active, view.draining, view.stale) == counts
    assert view.build_id == "one"


def test_the_liveliest_builds_come_first_and_unnamed_ones_last_among_equals():
    workers = [
        stale("s", "old"),
        fresh("a", "b-newer", 10),
        fresh("b", "a-older", 20),
        fresh("c", None),
        fresh("d", "leaving"),
        fresh("e", "c-newer", 10),
    ]
    views = cohort_views(workers, [draining("leaving"), a_cohort("nobody")], NOW_MS, WINDOW_MS)
    assert [view.build_id for view in views] == [
        "b-newer",
        "c-newer",
        "a-older",
        None,
        "leaving",
        "old",
        "nobody",
    ]


def test_workers_that_name_no_build_are_one_cohort():
    [view] = cohort_views([fresh("a", None), fresh("b", None)], [a_cohort("")], NOW_MS, WINDOW_MS)
    assert view.build_id is None
    assert view.cohort == a_cohort("")
    assert len(view.workers) == 2
