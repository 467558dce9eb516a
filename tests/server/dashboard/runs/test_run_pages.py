"""The pages about runs, workers, schedules and tasks, and what they change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest

from tests.server.client import Client
from tests.server.dashboard.conftest import QUEUE, serving
from tests.server.dashboard.visitors import Visitor
from tests.support.clock import ManualClock

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
    "a/b?c#d%2Fe",
)


@pytest.fixture
async def run_id(api: Client) -> str:
    """A run with a secret in its input, whose first workflow task waits."""
    return await start(api, "order-1")


async def start(api: Client, workflow_id: str, workflow_type: str = "orders") -> str:
    body = {
        "workflow_id": workflow_id,
        "workflow_type": workflow_type,
        "task_queue": QUEUE,
        "input": [{"card": "4242 4242 4242 4242"}],
    }
    return str((await api.post("/api/workflows", body)).expect(201).json["run_id"])


async def test_a_list_of_runs_says_whether_each_waits_for_a_gate(api: Client, run_id: str) -> None:
    plain = (await api.get("/api/workflows")).expect(200).json["workflows"]
    assert "tasks" not in plain[0]
    (run,) = (await api.get("/api/workflows?include=tasks")).expect(200).json["workflows"]
    assert (run["waits_for"], run["wait_kind"]) == ("gate", "workflow_task")
    (task,) = run["tasks"]
    assert {name: task[name] for name in ("kind", "state", "count", "task_queue")} == {
        "kind": "workflow",
        "state": "ready",
        "count": 1,
        "task_queue": QUEUE,
    }
    (await api.post("/api/workflows/order-1/terminate", {})).expect(200)
    (run,) = (await api.get("/api/workflows?include=tasks")).expect(200).json["workflows"]
    assert (run["waits_for"], run["tasks"]) == (None, [])


async def test_the_list_shows_what_each_run_waits_for(operator: Visitor, run_id: str) -> None:
    text = await operator.page("/ui/runs")
    assert f"/ui/runs/order-1/{run_id}" in text
    assert "a workflow task" in text
    assert f"ready in {QUEUE}, not dispatched" in text


async def test_a_query_that_cannot_be_read_is_explained_beside_the_box(
    operator: Visitor, run_id: str
) -> None:
    text = await operator.page("/ui/runs?q=" + quote("Statu = 'open'"))
    assert "There is no field &#39;Statu&#39;" in text
    assert "invalid_query" in text
    assert run_id not in text


async def test_the_query_box_suggests_what_comes_next(operator: Visitor, run_id: str) -> None:
    assert 'data-complete="Status = &#39;open&#39; "' in await operator.page(
        "/ui/runs/suggest?q=" + quote("Status = 'op")
    )


async def test_a_run_shows_input_timeline_and_history(operator: Visitor, run_id: str) -> None:
    text = await operator.page("/ui/runs/order-1")
    assert "4242 4242 4242 4242" in text
    assert 'class="timeline cards"' in text
    assert "1</button>" in text
    assert text == re.sub("<script(?![^>]*src)", "", text)
    event = await operator.page(f"/ui/runs/order-1/{run_id}/events/1")
    assert "Event 1: WorkflowStarted" in event
    assert "4242" in event


async def test_a_viewer_sees_a_run_and_none_of_its_payloads(
    api: Client, viewer: Visitor, run_id: str
) -> None:
    for target in ("", "?history=events", f"/{run_id}", f"/{run_id}/events/1"):
        text = await viewer.page(f"/ui/runs/order-1{target}")
        assert "4242" not in text
    text = await viewer.page("/ui/tasks/charge-0")
    assert "4242" not in text
    assert "hidden from your role" in text
    assert (await viewer.post(f"/ui/runs/order-1/{run_id}/act/terminate")).status == 403


async def test_a_run_is_terminated_only_after_its_effect_was_shown(
    api: Client, operator: Visitor, run_id: str
) -> None:
    dialog = await operator.page(f"/ui/runs/order-1/{run_id}/act/terminate")
    assert "no code of the workflow runs any more" in dialog
    await operator.page("/ui/runs/order-1")
    reply = await operator.post(f"/ui/runs/order-1/{run_id}/act/terminate", {"reason": "it is a test"})
    assert reply.status == 200, reply.raw[-500:]
    assert b"order-1 is terminated." in reply.raw
    described = (await api.get("/api/workflows/order-1")).expect(200).json
    assert described["closed_reason"] == "terminated"
    assert "it is a test" in await operator.page(
        f"/ui/runs/order-1/{run_id}/events/{described['history_length']}"
    )


async def test_a_signal_with_arguments_that_are_no_json_changes_nothing(
    api: Client, operator: Visitor, run_id: str
) -> None:
    await operator.page("/ui/runs/order-1")
    address = f"/ui/runs/order-1/{run_id}/act/signal"
    refused = await operator.post(address, {"name": "approve", "input": "yes"})
    assert refused.status == 422
    assert b"must be JSON" in refused.raw
    assert (await operator.post(address, {"name": "approve", "input": '["yes"]'})).status == 200
    assert (await api.get("/api/workflows/order-1")).expect(200).json["pending"]["signals"] == 1


async def test_selected_runs_and_no_others_are_cancelled(api: Client, operator: Visitor, run_id: str) -> None:
    other = await start(api, "order-2")
    third = await start(api, "order-3")
    ids = json.dumps([run_id, other])
    dialog = await operator.page("/ui/runs/bulk/terminate?ids=" + quote(ids))
    assert "2 open runs" in dialog
    selection = re.search(r'name="selection" value="([^"]+)"', dialog)
    assert selection is not None
    await operator.page("/ui/runs")
    form = {"selection": selection[1].replace("&#39;", "'"), "reason": "wrong prices"}
    reply = await operator.post("/ui/runs/bulk/terminate", form)
    assert reply.status == 200, reply.raw[-500:]
    assert b"2 runs were terminated." in reply.raw
    (left,) = (await api.get("/api/workflows?status=running")).expect(200).json["workflows"]
    assert left["run_id"] == third


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_text_on_the_pages_of_runs(api: Client, operator: Visitor, name: str) -> None:
    await start(api, name, name)
    own = quote(name, safe="")
    for target in ("/ui/runs", f"/ui/runs/{own}", "/ui/runs?q=" + own, "/ui/runs/bulk/cancel"):
        text = await operator.page(target)
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        read = re.sub(r'\s(?:href|data-copy|data-field|hx-[a-z:]+|value|data-complete)="[^"]*"', "", text)
        assert "\u202e" not in read


@pytest.mark.parametrize(
    "target", ["/runs/nobody", "/runs/bulk/explode", "/tasks/nobody", "/workers/nobody", "/schedules/nobody"]
)
async def test_what_does_not_exist_is_a_page_that_says_so(
    operator: Visitor, api: Client, target: str
) -> None:
    reply = await operator.get(f"/ui{target}")
    assert reply.status == 404
    assert b"<h1" in reply.raw or b"problem" in reply.raw


async def test_a_schedule_is_paused_with_a_reason_and_resumed(api: Client, operator: Visitor) -> None:
    body = {
        "schedule_id": "nightly",
        "spec": {"cron_expressions": ["0 2 * * *"]},
        "action": {"workflow_type": "orders", "task_queue": QUEUE},
    }
    (await api.post("/api/schedules", body)).expect(201)
    assert "nightly" in await operator.page("/ui/schedules")
    assert "Next fires" in await operator.page("/ui/schedules/nightly")
    assert "It fires no more until it is resumed." in await operator.page("/ui/schedules/nightly/act/pause")
    await operator.page("/ui/schedules")
    paused = await operator.post("/ui/schedules/nightly/act/pause", {"reason": "the ledger moves"})
    assert paused.status == 200, paused.raw[-500:]
    described = (await api.get("/api/schedules/nightly")).expect(200).json
    assert (described["paused"], described["note"]) == (True, "the ledger moves")
    assert (await operator.post("/ui/schedules/nightly/act/resume")).status == 200
    assert (await operator.post("/ui/schedules/nightly/act/trigger")).status == 200


async def test_workers_and_their_builds_are_shown_and_drained(api: Client, operator: Visitor) -> None:
    text = await operator.page("/ui/workers")
    assert "render-1" in text
    assert "render-1" in await operator.page("/ui/workers/render-1")
    assert "1 active worker" in await operator.page(f"/ui/builds/{QUEUE}/drain")
    await operator.page("/ui/workers")
    # A worker without a build id is the cohort of the empty build.
    drained = await operator.post(f"/ui/builds/{QUEUE}/drain", {"build": ""})
    assert drained.status == 200, drained.raw[-500:]
    (build,) = (await api.get(f"/api/task-queues/{QUEUE}/build-ids")).expect(200).json["build_ids"]
    assert build["drain_intent"] == "draining"


async def test_pages_without_anything_teach_the_next_command(somebody: Callable[[], Visitor]) -> None:
    operator = somebody()
    await operator.sign_in("operator-secret")
    for target, command in (
        ("/ui/runs", "penstock workflow start"),
        ("/ui/workers", "penstock worker run"),
        ("/ui/schedules", "penstock schedule create"),
        ("/ui/tasks", "penstock activity start"),
    ):
        assert command in await operator.page(target)


@pytest.mark.parametrize("text", ["50%_off", "100%", "a_b"])
async def test_signs_of_patterns_in_a_search_are_only_themselves(
    api: Client, operator: Visitor, text: str
) -> None:
    for name in ("order 50%_off", "order 100%", "order a_b", "order 50xxoff", "order 100x", "order axb"):
        await start(api, name)
    for target in (f"/ui/runs?q={quote(text)}", f"/ui/find?q={quote(f'order {text}')}"):
        page = await operator.page(target)
        shown = set(re.findall(r"/ui/runs/([^/?\"]+)", page)) - {"bulk", "suggest"}
        assert {each for each in shown if each.startswith("order")} == {quote(f"order {text}", safe="")}, (
            target
        )


async def test_columns_are_chosen_and_stay_in_the_address(
    api: Client, operator: Visitor, run_id: str
) -> None:
    attribute = {"name": "Customer", "type": "keyword"}
    (await api.post("/api/search-attributes", attribute)).expect(201)
    body = {
        "workflow_id": "order-2",
        "workflow_type": "orders",
        "task_queue": QUEUE,
        "business_key": "invoice-7",
    }
    (await api.post("/api/workflows", body | {"search_attributes": {"Customer": "acme"}})).expect(201)
    text = await operator.page("/ui/runs?columns=BusinessKey,Customer,Priority,Nothing")
    assert '<td data-l="BusinessKey"><span class="key">invoice-7</span></td>' in text
    assert '<td data-l="Customer"><span class="key">acme</span></td>' in text
    assert 'data-l="Nothing"' not in text
    assert "columns=BusinessKey%2CCustomer%2CPriority" in text


async def test_children_are_unfolded_in_the_timeline_and_the_tree(
    api: Client, operator: Visitor, run_id: str, clock: ManualClock
) -> None:
    worker = {
        "worker_id": "w-1",
        "task_queue": QUEUE,
        "runtime": "python",
        "supported_workflow_types": ["orders"],
    }
    (await api.post("/api/worker/register", worker, role="worker")).expect(201)
    poll = {"worker_id": "w-1", "task_queue": QUEUE, "timeout_seconds": 0}
    polled = (await api.post("/api/worker/workflow-tasks/poll", poll, role="worker")).expect(200).json
    task = polled["task"]
    command = {
        "type": "start_child_workflow",
        "workflow_type": "shipping",
        "workflow_id": "ship-1",
        "task_queue": QUEUE,
    }
    done = {
        "lease_owner": "w-1",
        "workflow_task_attempt": task["workflow_task_attempt"],
        "commands": [command],
    }
    at = f"/api/worker/workflow-tasks/{task['task_id']}/complete"
    (await api.post(at, done, role="worker")).expect(200)
    clock.advance(5_000)
    child = (await api.get("/api/workflows/ship-1")).expect(200).json["run_id"]
    folded = await operator.page("/ui/runs/order-1")
    assert 'aria-label="Show the steps of shipping"' in folded
    assert 'aria-label="Unfold ship-1"' in folded
    opened = await operator.page(f"/ui/runs/order-1?open=ship-1/{child}")
    assert 'aria-label="Hide the steps of shipping"' in opened
    assert 'data-depth="1"' in opened
    assert f'data-depth="0"><th scope="row"><a href="/ui/runs/order-1/{run_id}' in await operator.page(
        "/ui/runs/ship-1"
    ), "its parent, with its state"


async def test_a_viewer_sees_no_line_of_source_whatever_is_set() -> None:
    async with serving(DW_UI_VIEWER_PAYLOADS="true", DW_SOURCE_LINES="true") as server:
        api = Client(server.application)
        worker = {
            "worker_id": "w-1",
            "task_queue": QUEUE,
            "runtime": "python",
            "supported_workflow_types": ["orders"],
        }
        registered = (await api.post("/api/worker/register", worker, role="worker")).expect(201).json
        assert registered["source_lines"] is True
        await start(api, "order-1")
        poll = {"worker_id": "w-1", "task_queue": QUEUE, "timeout_seconds": 0}
        task = (
            (await api.post("/api/worker/workflow-tasks/poll", poll, role="worker")).expect(200).json["task"]
        )
        stack = '  File "/app/shop.py", line 8, in run\n    > 8 |  secret_line()\n'
        failed = {
            "lease_owner": "w-1",
            "workflow_task_attempt": task["workflow_task_attempt"],
            "commands": [
                {
                    "type": "fail_workflow",
                    "message": "no funds",
                    "exception_type": "Declined",
                    "exception": {"type": "Declined", "message": "no funds", "stack_trace": stack},
                }
            ],
        }
        at = f"/api/worker/workflow-tasks/{task['task_id']}/complete"
        (await api.post(at, failed, role="worker")).expect(200)
        seen = {}
        for name in ("operator", "viewer"):
            visitor = Visitor(server.application)
            await visitor.sign_in(f"{name}-secret", f"{name}-1")
            seen[name] = await visitor.page("/ui/runs/order-1") + await visitor.page(
                "/ui/runs/order-1?history=events"
            )
        assert "secret_line()" in seen["operator"]
        assert "Declined: no funds" in seen["viewer"], "what it says is a payload"
        assert "secret_line()" not in seen["viewer"]
