"""Workflows over HTTP: start, read, advance, close."""

from __future__ import annotations

import asyncio
import base64

import pytest

from penstock.wire import payloads
from tests.acceptance.cluster import Cluster, Json, value

COMPLETE = {"type": "complete_workflow", "result": "done"}


# --- starting ---


async def test_a_start_answers_with_the_run_and_a_ready_task(scene: Cluster) -> None:
    started = (await scene.start("order-1", business_key="key-1", input=["a", 1])).expect(201)
    assert started["outcome"] == "started_new"
    assert (started["status"], started["payload_codec"]) == ("pending", "avro")
    assert (started["workflow_type"], started["task_queue"]) == ("greeter", "q")
    assert started["business_key"] == "key-1"
    worker = await scene.worker("w-1")
    task = await worker.take()
    assert (task["workflow_id"], task["run_id"]) == ("order-1", started["run_id"])
    assert (task["workflow_task_attempt"], task["task_kind"], task["payload_codec"]) == (
        1,
        "workflow",
        "avro",
    )
    assert value(task["arguments"]) == ["a", 1]
    assert [event["event_type"] for event in task["history_events"]] == ["WorkflowStarted"]
    assert task["next_history_page_token"] is None


async def test_a_start_without_an_id_or_queue_is_given_both(scene: Cluster) -> None:
    started = (await scene.post("/api/workflows", {"workflow_type": "greeter"})).expect(201)
    assert started["workflow_id"]
    assert started["task_queue"] == "default"


async def test_plain_json_and_an_envelope_carry_the_same_arguments(scene: Cluster) -> None:
    arguments = ["Ada", 1, 2.5, True, None, {"deep": [[]]}]
    envelope = {"codec": "avro", "blob": payloads.encode(arguments).blob}
    (await scene.start("plain", input=arguments)).expect(201)
    (await scene.start("wrapped", input=envelope)).expect(201)
    (await scene.start("nothing")).expect(201)
    plain, wrapped = await scene.describe("plain"), await scene.describe("wrapped")
    assert plain["input"] == wrapped["input"] == arguments
    assert plain["input_envelope"] == wrapped["input_envelope"] == envelope
    assert (await scene.describe("nothing"))["input"] == []


@pytest.mark.parametrize(
    "given", ["text", 7, {"codec": "json", "blob": "x"}, {"codec": "avro", "blob": "*"}, {"codec": "avro"}]
)
async def test_input_that_is_neither_a_list_nor_an_envelope_is_refused(scene: Cluster, given: object) -> None:
    reply = (await scene.start("order-1", input=given)).expect(422, "validation_failed")
    assert all(field.startswith("input") for field in reply["errors"])
    (await scene.get("/api/workflows/order-1")).expect(404, "instance_not_found")


async def test_a_second_start_of_an_open_id_is_refused_or_returns_the_first(scene: Cluster) -> None:
    first = (await scene.start("order-1", input=[1])).expect(201)
    refused = (await scene.start("order-1", input=[2])).expect(409, "instance_already_started")
    assert refused["outcome"] == "rejected_duplicate"
    assert refused["run_id"] == first["run_id"]
    same = (await scene.start("order-1", input=[3], duplicate_policy="use-existing")).expect(200)
    assert (same["run_id"], same["outcome"]) == (first["run_id"], "returned_existing_active")
    assert (await scene.describe("order-1"))["input"] == [1]
    assert len(await scene.events("order-1")) == 1


@pytest.mark.parametrize("policy", ["fail", "use-existing"])
async def test_the_id_of_a_closed_run_stays_taken(scene: Cluster, policy: str) -> None:
    (await scene.start("order-1")).expect(201)
    (await scene.post("/api/workflows/order-1/terminate", {})).expect(200)
    refused = await scene.start("order-1", duplicate_policy=policy)
    refused.expect(409, "instance_already_started")


async def test_a_start_repeated_under_its_idempotency_key_starts_nothing_more(scene: Cluster) -> None:
    key = {"Idempotency-Key": "start-1"}
    first = (await scene.start("order-1", more=key)).expect(201)
    for _ in range(3):
        again = (await scene.start("order-1", more=key)).expect(200)
        assert (again["run_id"], again["deduplicated"]) == (first["run_id"], True)
    (await scene.start("order-1", more={"Idempotency-Key": "start-2"})).expect(
        409, "instance_already_started"
    )


async def test_of_many_starts_of_one_id_at_once_exactly_one_wins(scene: Cluster) -> None:
    replies = await asyncio.gather(*(scene.start("order-1") for _ in range(12)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 11
    assert {reply["run_id"] for reply in replies} == {replies[0]["run_id"]}
    assert len((await scene.get("/api/workflows")).ok()["workflows"]) == 1


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("workflow_execution_timeout", 5),
        ("workflow_run_timeout", 5),
        ("workflow_task_timeout", 5),
        ("retry_policy", {"max_attempts": 2}),
        ("idempotency_key", "k"),
        ("request_id", "r"),
        ("workflow_id", "a\tb"),
        ("workflow_id", "x" * 129),
        ("duplicate_policy", "use_existing"),
        ("priority", 10),
        ("fairness_weight", 0),
        ("execution_timeout_seconds", 0),
        ("run_timeout_seconds", True),
        ("memo", "text"),
        ("search_attributes.1a", {"1a": "x"}),
    ],
)
async def test_a_field_that_start_does_not_take_is_named(scene: Cluster, field: str, given: object) -> None:
    reply = await scene.post("/api/workflows", {"workflow_type": "t", field.split(".")[0]: given})
    reply.expect(422, "validation_failed")
    assert set(reply["errors"]) == {field}


async def test_a_batch_of_starts_has_an_outcome_for_each_item(scene: Cluster) -> None:
    (await scene.start("order-2")).expect(201)
    items: list[Json] = [
        {"workflow_type": "greeter", "workflow_id": f"order-{n}", "task_queue": "q"} for n in (1, 2)
    ]
    items += [{"workflow_id": "order-3"}, {"workflow_type": "greeter", "workflow_id": "order-4"}]
    batch = (await scene.post("/api/workflows/batch", {"items": items})).expect(200)
    assert (batch["accepted"], batch["refused"]) == (2, 2)
    assert [(item["http_status"], item.get("reason")) for item in batch["items"]] == [
        (201, None),
        (409, "instance_already_started"),
        (422, "validation_failed"),
        (201, None),
    ]
    (await scene.get("/api/workflows/order-3")).expect(404, "instance_not_found")
    (await scene.post("/api/workflows/batch", {"items": []})).expect(422, "validation_failed")
    (await scene.post("/api/workflows/batch", {"items": items[:1] * 101})).expect(422, "validation_failed")


# --- reading ---


async def test_describe_says_everything_the_contract_promises(scene: Cluster) -> None:
    (await scene.post("/api/search-attributes", {"name": "Region", "type": "keyword"})).expect(201)
    (
        await scene.start(
            "order-1",
            memo={"note": "hi"},
            search_attributes={"Region": "eu"},
            execution_timeout_seconds=3600,
            run_timeout_seconds=600,
            business_key="b-1",
        )
    ).expect(201)
    shown = await scene.describe("order-1")
    assert (shown["status"], shown["status_bucket"], shown["is_terminal"]) == ("pending", "running", False)
    assert (shown["run_number"], shown["run_count"], shown["is_current_run"]) == (1, 1, True)
    assert (shown["memo"], shown["search_attributes"]) == ({"note": "hi"}, {"Region": "eu"})
    assert (shown["execution_timeout_seconds"], shown["run_timeout_seconds"]) == (3600, 600)
    assert shown["execution_deadline_at"] > shown["run_deadline_at"] > shown["started_at"]
    assert shown["closed_at"] is shown["closed_reason"] is shown["output"] is shown["output_envelope"] is None
    assert shown["actions"]["can_cancel"] is True
    same = (await scene.get(f"/api/workflows/order-1/runs/{shown['run_id']}")).expect(200)
    dropped = {"control_plane"}
    assert {k: v for k, v in same.body.items() if k not in dropped} == {
        k: v for k, v in shown.items() if k not in dropped
    }
    runs = (await scene.get("/api/workflows/order-1/runs")).expect(200)
    assert (runs["run_count"], [run["run_id"] for run in runs["runs"]]) == (1, [shown["run_id"]])


async def test_what_does_not_exist_is_named(scene: Cluster) -> None:
    for path in ("/api/workflows/nobody", "/api/workflows/nobody/runs"):
        (await scene.get(path)).expect(404, "instance_not_found")
    (await scene.start("order-1")).expect(201)
    for path in ("runs/nothing", "runs/nothing/history"):
        reply = (await scene.get(f"/api/workflows/order-1/{path}")).expect(404, "run_not_found")
        assert (reply["workflow_id"], reply["run_id"]) == ("order-1", "nothing")


async def test_a_list_is_paged_newest_first_without_doubles_or_gaps(scene: Cluster) -> None:
    for number in range(7):
        (await scene.start(f"order-{number}")).expect(201)
    seen: list[str] = []
    path = "/api/workflows?page_size=3"
    token: str | None = ""
    while token is not None:
        page = (await scene.get(path + (f"&next_page_token={token}" if token else ""))).expect(200)
        assert page["workflow_count"] == len(page["workflows"])
        seen += [each["workflow_id"] for each in page["workflows"]]
        token = page["next_page_token"]
    assert seen == [f"order-{number}" for number in reversed(range(7))]


async def test_a_list_is_narrowed_by_type_status_and_text(scene: Cluster) -> None:
    (await scene.start("order-1", "ship", business_key="acme")).expect(201)
    (await scene.start("order-2", "bill")).expect(201)
    (await scene.start("other-3", "bill")).expect(201)
    (await scene.post("/api/workflows/order-2/cancel", {})).expect(200)
    for query, expected in (
        ("workflow_type=ship", ["order-1"]),
        ("status=running", ["other-3", "order-1"]),
        ("status=failed", ["order-2"]),
        ("status=cancelled", ["order-2"]),
        ("status=completed", []),
        ("query=order", ["order-2", "order-1"]),
        ("query=acm", ["order-1"]),
        ("status=running&workflow_type=bill", ["other-3"]),
    ):
        page = (await scene.get(f"/api/workflows?{query}")).expect(200)
        assert [each["workflow_id"] for each in page["workflows"]] == expected, query
    (await scene.get("/api/workflows?status=waiting")).expect(422, "validation_failed")
    (await scene.get("/api/workflows?page_size=201")).expect(422, "validation_failed")


async def test_a_page_token_that_nobody_gave_out_is_refused(scene: Cluster) -> None:
    run = (await scene.start("order-1")).expect(201)["run_id"]
    for path in ("/api/workflows", f"/api/workflows/order-1/runs/{run}/history", "/api/activities"):
        (await scene.get(f"{path}?next_page_token=nonsense!")).expect(400, "invalid_page_token")


async def test_history_is_paged_and_complete(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    run = (await scene.start("order-1")).expect(201)["run_id"]
    timers = [{"type": "start_timer", "delay_seconds": 3600} for _ in range(10)]
    (await worker.decide(await worker.take(), *timers)).expect(200)
    path = f"/api/workflows/order-1/runs/{run}/history"
    first = (await scene.get(f"{path}?derived=false&page_size=4")).expect(200)
    assert [event["sequence"] for event in first["events"]] == [1, 2, 3, 4]
    second = (
        await scene.get(f"{path}?derived=false&page_size=7&next_page_token={first['next_page_token']}")
    ).expect(200)
    assert [event["sequence"] for event in second["events"]] == list(range(5, 12))
    assert second["next_page_token"] is None
    for event in first["events"]:
        assert isinstance(event["id"], str)
        assert event["timestamp"].endswith(("Z", "+00:00"))


async def test_a_reader_that_waits_for_the_next_event_is_woken_by_it(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    run = (await scene.start("order-1")).expect(201)["run_id"]
    token = base64.b64encode(b"1").decode()
    waiting = asyncio.create_task(
        scene.get(
            f"/api/workflows/order-1/runs/{run}/history?wait_new_event=true&next_page_token={token}",
            server=scene.first,
        )
    )
    (await worker.finish(await worker.take())).expect(200)
    seen = (await waiting).expect(200)
    assert [event["event_type"] for event in seen["events"]] == ["WorkflowCompleted"]
    late = await scene.get(
        f"/api/workflows/order-1/runs/{run}/history?wait_new_event=1&next_page_token="
        + base64.b64encode(b"2").decode()
    )
    assert late.expect(200)["events"] == []


# --- advancing ---


async def test_a_workflow_with_one_activity_runs_from_start_to_result(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1", input=["Ada"])).expect(201)
    task = await worker.take()
    scheduled = await worker.decide(
        task, {"type": "schedule_activity", "activity_type": "greet", "arguments": ["Ada"]}
    )
    scheduled.expect(200)
    assert (scheduled["outcome"], scheduled["recorded"], scheduled["run_status"]) == (
        "completed",
        True,
        "running",
    )
    assert len(scheduled["created_task_ids"]) == 1
    shown = await scene.describe("order-1")
    assert (shown["status"], shown["wait_kind"], shown["open_activities"]) == ("waiting", "activity", 1)
    activity = await worker.take("activity")
    assert activity["task_id"] == scheduled["created_task_ids"][0]
    assert (activity["activity_type"], value(activity["arguments"])) == ("greet", ["Ada"])
    assert (activity["attempt_number"], activity["workflow_id"]) == (1, "order-1")
    reported = (await worker.finish(activity, "Hello, Ada")).expect(200)
    assert (reported["outcome"], reported["recorded"]) == ("completed", True)
    task = await worker.take()
    assert task["task_id"] == reported["next_task_id"]
    assert [event["event_type"] for event in task["history_events"]][:2] == [
        "WorkflowStarted",
        "ActivityScheduled",
    ]
    (await worker.finish(task, "Hello, Ada")).expect(200)
    shown = await scene.describe("order-1")
    assert (shown["status"], shown["closed_reason"], shown["output"]) == (
        "completed",
        "completed",
        "Hello, Ada",
    )
    types = await scene.event_types("order-1")
    assert [each for each in types if each != "ActivityStarted"] == [
        "WorkflowStarted",
        "ActivityScheduled",
        "ActivityCompleted",
        "WorkflowCompleted",
    ]


async def test_a_timer_wakes_its_workflow_once(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    (await worker.decide(await worker.take(), {"type": "start_timer", "delay_seconds": 1})).expect(200)
    assert (await scene.describe("order-1"))["wait_kind"] == "timer"
    task = await worker.take()
    assert [event["event_type"] for event in task["history_events"]] == [
        "WorkflowStarted",
        "TimerScheduled",
        "TimerFired",
    ]
    set_off, fired = (event["payload"] for event in task["history_events"][1:])
    assert fired["timer_id"] == set_off["timer_id"]
    (await worker.decide(task, {"type": "start_timer", "delay_seconds": 0})).expect(200)
    (await worker.finish(await worker.take())).expect(200)
    assert (await scene.event_types("order-1")).count("TimerFired") == 2


async def test_a_failed_workflow_says_why(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    failure = {"type": "fail_workflow", "message": "out of stock", "exception_class": "OutOfStock"}
    (await worker.decide(await worker.take(), failure)).expect(200)
    shown = await scene.describe("order-1")
    assert (shown["status"], shown["status_bucket"], shown["closed_reason"]) == ("failed",) * 3
    last = (await scene.events("order-1"))[-1]
    assert last["event_type"] == "WorkflowFailed"
    assert (last["payload"]["message"], last["payload"]["exception_class"]) == ("out of stock", "OutOfStock")


async def test_a_workflow_task_that_failed_is_tried_again_and_the_run_stays_open(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    task = await worker.take()
    failed = await worker.report(task, "fail", failure={"message": "unknown type", "type": "LookupError"})
    failed.expect(200)
    assert (failed["outcome"], failed["next_task_id"]) == ("failed", task["task_id"])
    shown = await scene.describe("order-1")
    assert (shown["is_terminal"], shown["workflow_task_failures"]) == (False, 1)
    assert "unknown type" in shown["last_workflow_task_error"]
    again = await worker.take()
    assert (again["task_id"], again["workflow_task_attempt"]) == (task["task_id"], 2)
    (await worker.finish(again)).expect(200)
    assert await scene.event_types("order-1") == ["WorkflowStarted", "WorkflowCompleted"]


async def test_a_task_that_waits_for_history_ends_quietly(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    (
        await worker.decide(
            await worker.take(),
            {"type": "schedule_activity", "activity_type": "a"},
            {"type": "schedule_activity", "activity_type": "b"},
        )
    ).expect(200)
    first, second = await worker.take("activity"), await worker.take("activity")
    (await worker.finish(first)).expect(200)
    waiting = await worker.report(
        await worker.take(), "fail", failure={"message": "-", "type": "WorkflowTaskWaitingForHistory"}
    )
    assert waiting.expect(200)["outcome"] == "waiting_for_history"
    assert (await scene.describe("order-1"))["workflow_task_failures"] == 0
    (await worker.finish(second)).expect(200)
    (await worker.finish(await worker.take())).expect(200)


async def test_what_happens_while_a_task_is_leased_comes_after_its_commands(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    (
        await worker.decide(
            await worker.take(),
            {"type": "schedule_activity", "activity_type": "a"},
            {"type": "schedule_activity", "activity_type": "b"},
        )
    ).expect(200)
    first, second = await worker.take("activity"), await worker.take("activity")
    (await worker.finish(first, 1)).expect(200)
    task = await worker.take()
    (await worker.finish(second, 2)).expect(200)
    (await worker.decide(task, {"type": "schedule_activity", "activity_type": "c"})).expect(200)
    kinds = [
        (event["event_type"], event["payload"]["activity_type"])
        for event in (await scene.events("order-1"))[1:]
        if event["event_type"] != "ActivityStarted"
    ]
    assert kinds[2:] == [
        ("ActivityCompleted", first["activity_type"]),
        ("ActivityScheduled", "c"),
        ("ActivityCompleted", second["activity_type"]),
    ]
    assert (await worker.take())["run_id"] == task["run_id"]


async def test_a_leased_task_reads_its_history_in_pages(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    timers = [{"type": "start_timer", "delay_seconds": 0} for _ in range(6)]
    (await worker.decide(await worker.take(), *timers)).expect(200)
    task = await worker.take(history_page_size=3)
    events, token = task["history_events"], task["next_history_page_token"]
    assert (len(events), token is None) == (3, False)
    while token is not None:
        page = await worker.report(task, "history", next_history_page_token=token, history_page_size=3)
        events += page.expect(200)["history_events"]
        token = page["next_history_page_token"]
    assert [event["sequence"] for event in events] == list(range(1, task["total_history_events"] + 1))
    (await worker.report(task, "history", next_history_page_token="?")).expect(400, "invalid_page_token")


@pytest.mark.parametrize(
    ("commands", "field"),
    [
        ([{"type": "start_timer"}], "commands.0.delay_seconds"),
        ([{"type": "start_timer", "delay_seconds": -1}], "commands.0.delay_seconds"),
        ([{"type": "launch_rocket"}], "commands.0.type"),
        ([COMPLETE, COMPLETE], "commands.0.type"),
        ([{"type": "schedule_activity"}], "commands.0.activity_type"),
        (
            [
                {
                    "type": "schedule_activity",
                    "activity_type": "a",
                    "start_to_close_timeout": 9,
                    "schedule_to_close_timeout": 3,
                }
            ],
            "commands.0.start_to_close_timeout",
        ),
        (
            [{"type": "schedule_activity", "activity_type": "a", "parallel_group_path": [{}]}],
            "commands.0.parallel_group_path.0",
        ),
        ([], "commands"),
    ],
)
async def test_one_wrong_command_refuses_them_all_and_is_named(
    scene: Cluster, commands: list[Json], field: str
) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    task = await worker.take()
    reply = (await worker.decide(task, *commands)).expect(422, "validation_failed")
    assert set(reply["errors"]) == {field}
    assert await scene.event_types("order-1") == ["WorkflowStarted"]
    (await worker.finish(task)).expect(200)


# --- ending from outside ---


@pytest.mark.parametrize(
    ("action", "status", "events"),
    [
        ("cancel", "cancelled", ["CancelRequested", "WorkflowCancelled"]),
        ("terminate", "terminated", ["TerminateRequested", "WorkflowTerminated"]),
    ],
)
async def test_a_run_that_is_ended_from_outside_ends_at_once(
    scene: Cluster, action: str, status: str, events: list[str]
) -> None:
    worker = await scene.worker("w-1")
    (await scene.start("order-1")).expect(201)
    (
        await worker.decide(
            await worker.take(),
            {"type": "schedule_activity", "activity_type": "a"},
            {"type": "start_timer", "delay_seconds": 60},
        )
    ).expect(200)
    ended = await scene.post(f"/api/workflows/order-1/{action}", {"reason": "changed our mind"})
    ended.expect(200)
    assert (ended["outcome"], ended["command_status"], ended["target_scope"]) == (
        status,
        "accepted",
        "instance",
    )
    shown = await scene.describe("order-1")
    assert (shown["status"], shown["closed_reason"], shown["is_terminal"]) == (status, status, True)
    history = await scene.events("order-1")
    types = [event["event_type"] for event in history]
    assert types[3:] == [events[0], "ActivityCancelled", "TimerCancelled", events[1]]
    assert history[-1]["payload"]["reason"] == "changed our mind"
    assert (await worker.poll("activity")).expect(200)["poll_status"] == "empty"
    for again in ("cancel", "terminate"):
        refused = await scene.post(f"/api/workflows/order-1/{again}", {})
        refused.expect(409, "run_not_active")
        assert refused["control_plane"]["operation"] == again


async def test_a_run_is_ended_by_its_run_id_too(scene: Cluster) -> None:
    run = (await scene.start("order-1")).expect(201)["run_id"]
    ended = (await scene.post(f"/api/workflows/order-1/runs/{run}/cancel", {})).expect(200)
    assert (ended["run_id"], ended["target_scope"]) == (run, "run")
    (await scene.post("/api/workflows/nobody/cancel", {})).expect(404, "instance_not_found")
    (await scene.post("/api/workflows/nobody/terminate", {})).expect(404, "instance_not_found")


async def test_a_report_on_a_closed_run_changes_nothing(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    activity = await worker.schedule("order-1")
    (await scene.start("order-2")).expect(201)
    task = await worker.take()
    for workflow in ("order-1", "order-2"):
        (await scene.post(f"/api/workflows/{workflow}/cancel", {})).expect(200)
    late = (await worker.finish(activity, "too late")).expect(409, "run_cancelled")
    assert (late["outcome"], late["recorded"], late["cancel_requested"]) == ("ignored", False, True)
    beat = (await worker.report(activity, "heartbeat")).expect(200, "run_cancelled")
    assert (beat["cancel_requested"], beat["can_continue"], beat["heartbeat_recorded"]) == (
        True,
        False,
        False,
    )
    late = (await worker.finish(task)).expect(409, "run_closed")
    assert (late["stop_reason"], late["can_continue"]) == ("run_cancelled", False)
    for workflow in ("order-1", "order-2"):
        assert (await scene.event_types(workflow))[-1] == "WorkflowCancelled"


async def test_a_run_that_outlives_its_timeout_is_closed(scene: Cluster) -> None:
    worker = await scene.worker("w-1")
    run = (await scene.start("order-1", run_timeout_seconds=1)).expect(201)["run_id"]
    task = await worker.take()
    closed = await scene.get(
        f"/api/workflows/order-1/runs/{run}/history?wait_new_event=1&next_page_token=MQ=="
    )
    assert [event["event_type"] for event in closed.expect(200)["events"]] == ["WorkflowTimedOut"]
    assert closed["events"][0]["payload"]["timeout_kind"] == "run_timeout"
    shown = await scene.describe("order-1")
    assert (shown["status"], shown["closed_reason"]) == ("failed", "timed_out")
    (await worker.finish(task)).expect(409, "run_closed")
