"""What a configuration and the workers that are there do not agree about."""

from __future__ import annotations

import pytest

from penstock.dispatch import dispatch_from
from penstock.dispatch.inspection.doctor import ClusterView, QueueRateView, UnservedTasks, WorkerView, examine
from tests.dispatch.tables import tree

_CONFIG = dispatch_from(
    tree(
        {"resize": {"default": "gpu"}, "mail": {"default": "mial"}},
        {"gpu": {"max_task_queue_activities_per_second": 10}, "mail": {}},
    )
)
_HOME = WorkerView("h", "home")


def _kinds(*workers: WorkerView, **queues: QueueRateView) -> set[tuple[str, str]]:
    return {(each.kind, each.subject) for each in examine(_CONFIG, ClusterView([_HOME, *workers], queues))}


def test_queues_that_nobody_serves_and_routes_to_nowhere_are_found() -> None:
    assert _kinds() == {("queue_without_worker", "gpu"), ("route_to_nowhere", "mial")}
    (nowhere,) = [each for each in examine(_CONFIG, ClusterView([_HOME])) if each.kind == "route_to_nowhere"]
    assert nowhere.is_serious
    assert "did you mean 'mail'?" in nowhere.advice


def test_workers_that_lack_the_activity_or_its_slots_do_not_count() -> None:
    other = WorkerView("o", "gpu", frozenset({"paint"}))
    idle = WorkerView("i", "gpu", frozenset({"resize"}), takes_activities=False)
    mailer = WorkerView("m", "mial")
    assert _kinds(other, idle, mailer) == {("activity_without_worker", "resize on gpu")}
    assert _kinds(WorkerView("g", "gpu", frozenset({"resize"})), mailer) == set()


def test_tasks_that_wait_and_that_no_worker_takes_are_found() -> None:
    wait = UnservedTasks("paint", "no worker of the task queue gpu runs activity tasks of type paint", 3)
    workers = [WorkerView("g", "gpu", frozenset({"resize"})), WorkerView("m", "mial")]
    assert _kinds(*workers, gpu=QueueRateView(ready=3, unserved=[wait])) == {
        ("tasks_without_worker", "paint on gpu")
    }
    seen = ClusterView([_HOME, *workers], {"gpu": QueueRateView(ready=3, unserved=[wait])})
    (found,) = examine(_CONFIG, seen)
    assert found.is_serious
    assert found.message == "3 tasks wait: no worker of the task queue gpu runs activity tasks of type paint"


def test_workers_on_a_queue_that_the_file_does_not_name_are_found() -> None:
    assert ("worker_without_route", "gpuu") in _kinds(WorkerView("x", "gpuu"))


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (QueueRateView(limit=5, source="operator"), "cap_never_binds"),
        (QueueRateView(limit=10, source="worker", worker_limit=4), "cap_never_binds"),
        (QueueRateView(limit=7, source="worker"), "cap_differs"),
        (QueueRateView(limit=10, source="worker", worker_limit=40), None),
        (QueueRateView(), None),
    ],
)
def test_caps_that_something_else_always_reaches_first_are_found(
    seen: QueueRateView, kind: str | None
) -> None:
    found = _kinds(WorkerView("g", "gpu"), WorkerView("m", "mial"), gpu=seen)
    assert found == (set() if kind is None else {(kind, "gpu")})


def test_caps_that_the_file_alone_shows_to_be_idle_are_found_without_a_server() -> None:
    config = dispatch_from(
        {
            "queue_options": {"orphan": {"max_task_queue_activities_per_second": 1}},
            "worker_runtime_profiles": {
                "profiles": {"router": {"max_concurrent_activities": 0, "max_activities_per_second": 1}}
            },
        }
    )
    assert [each.subject for each in examine(config)] == ["orphan", "profile router"]
    assert not any(each.is_serious for each in examine(config))
