"""Batches over HTTP, on every store: each item has its own outcome, as if it had been sent alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock.errors import Reason, Unavailable
from tests.server.client import Client

NUMBERS = itertools.count()
Body = dict[str, Any]


@pytest.fixture
def name() -> str:
    """A queue of the test's own: the servers are shared."""
    return f"batches-{next(NUMBERS)}"


def item(name: str, number: int, **fields: Any) -> Body:
    return {"activity_id": f"{name}-{number}", "activity_type": "charge", "task_queue": name} | fields


async def start(client: Client, items: list[Body]) -> list[Body]:
    answer = (await client.post("/api/activities/batch", {"items": items})).expect(200)
    found: list[Body] = answer.json["items"]
    return found


async def leased(client: Client, name: str, count: int) -> list[Body]:
    """That many started activities, held by the queue's worker."""
    body = {"worker_id": f"worker-{name}", "task_queue": name, "runtime": "python"}
    (await client.post("/api/worker/register", body, role="worker")).expect(201)
    await start(client, [item(name, number) for number in range(count)])
    poll = {"worker_id": f"worker-{name}", "task_queue": name, "timeout_seconds": 0, "max_tasks": count}
    answer = (await client.post("/api/worker/activity-tasks/poll", poll, role="worker")).expect(200)
    tasks: list[Body] = answer.json["tasks"]
    assert len(tasks) == count
    return tasks


def report(name: str, task: Body, **fields: Any) -> Body:
    lease = {"lease_owner": f"worker-{name}", "activity_attempt_id": task["activity_attempt_id"]}
    return {"task_id": task["task_id"]} | lease | fields


async def send(client: Client, items: list[Body]) -> list[Body]:
    answer = await client.post("/api/worker/activity-tasks/batch", {"items": items}, role="worker")
    found: list[Body] = answer.expect(200).json["items"]
    return found


def told(items: list[Body]) -> list[tuple[int, str | None, str | None]]:
    return [(each["http_status"], each.get("outcome"), each.get("reason")) for each in items]


async def test_items_answer_in_their_order_and_those_that_are_refused_disturb_nobody(
    everywhere: Client, name: str
) -> None:
    items = [
        item(name, 1),
        {"activity_type": "charge"},
        item(name, 2, idempotency_key=7),
        item(name, 1),
        item(name, 3, input="text"),
        item(name, 1, duplicate_policy="use-existing"),
        item(name, 4),
    ]
    answers = await start(everywhere, items)
    assert told(answers) == [
        (201, "started_new", None),
        (422, None, "validation_failed"),
        (422, None, "validation_failed"),
        (409, "rejected_duplicate", "instance_already_started"),
        (422, None, "validation_failed"),
        (200, "returned_existing_active", None),
        (201, "started_new", None),
    ]
    assert list(answers[1]["errors"]) == ["task_queue"]
    assert list(answers[2]["errors"]) == ["idempotency_key"]
    assert list(answers[4]["errors"]) == ["input"]
    assert [answers[place]["activity_id"] for place in (0, 5, 6)] == [f"{name}-1", f"{name}-1", f"{name}-4"]


async def test_an_item_is_answered_as_a_request_of_its_own_is(everywhere: Client, name: str) -> None:
    [together] = await start(everywhere, [item(name, 1)])
    alone = (await everywhere.post("/api/activities", item(name, 2))).expect(201).json
    assert [each for each in together if each != "http_status"] == list(alone)
    [refused] = await start(everywhere, [item(name, 1)])
    refusal = (await everywhere.post("/api/activities", item(name, 1))).json
    assert refused == {"http_status": 409} | refusal


async def test_reports_on_one_task_count_in_the_order_in_which_they_stand(
    everywhere: Client, name: str
) -> None:
    first, second = await leased(everywhere, name, 2)
    failure = {"message": "no", "non_retryable": True}
    answers = await send(
        everywhere,
        [
            report(name, first, action="fail", failure=failure),
            report(name, second, result=None),
            report(name, first, result=None),
            report(name, second, action="fail", failure=failure),
        ],
    )
    assert told(answers)[:2] == [(200, "failed", None), (200, "completed", None)]
    for answer, task in zip(answers[2:], (first, second), strict=True):
        assert answer["http_status"] == 409
        assert answer["outcome"] == "ignored"
        assert answer["recorded"] is False
        assert answer["task_id"] == task["task_id"]
        assert answer["activity_attempt_id"] == task["activity_attempt_id"]


async def test_what_was_refused_upstream_is_told_beside_the_others(everywhere: Client, name: str) -> None:
    tasks = await leased(everywhere, name, 3)
    throttled = {"message": "slow down", "throttled": True, "retry_after_seconds": 60}
    answers = await send(
        everywhere,
        [
            report(name, tasks[0], result=None),
            report(name, tasks[1], action="fail", failure=throttled),
            report(name, tasks[2], action="fail", failure=throttled | {"throttled": False}),
            report(name, tasks[2], action="hand_back"),
        ],
    )
    assert told(answers) == [
        (200, "completed", None),
        (200, "throttled", None),
        (422, None, "validation_failed"),
        (200, "handed_back", None),
    ]


async def test_when_the_store_takes_none_every_item_is_told_so_with_what_it_is_about(
    penstock: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = await leased(penstock, name, 2)

    async def full(_self: object, _asked: object) -> list[object]:
        raise Unavailable(Reason.STORE_UNAVAILABLE, "Try again shortly.", outcome="none")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.stores.sqlite.ephemeral.EphemeralStore.transact_all", full)
        answers = await send(penstock, [report(name, task, result=None) for task in tasks])
    assert told(answers) == [(503, "none", "store_unavailable")] * 2
    assert [each["task_id"] for each in answers] == [task["task_id"] for task in tasks]


async def test_an_item_that_the_server_fails_on_leaves_the_others_alone(
    penstock: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.wire import responses

    render = responses.standalone_activity

    def break_down(run: Any, activity: Any) -> Any:
        if run.workflow_id.endswith("-1"):
            raise ZeroDivisionError
        return render(run, activity)

    monkeypatch.setattr(responses, "standalone_activity", break_down)
    answers = await start(penstock, [item(name, 0), item(name, 1), item(name, 2)])
    assert told(answers) == [
        (201, "started_new", None),
        (500, "unknown", "server_error"),
        (201, "started_new", None),
    ]
