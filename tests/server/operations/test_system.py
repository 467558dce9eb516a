"""Debug views and system operations over HTTP, on every store."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from durable_workflow.history_bundle_verify import verify_bundle_json
from msgspec.structs import replace

from penstock import assembly
from penstock.core.model import RecordedEvent, RunId
from penstock.engine.context import EngineContext
from penstock.engine.operations import history_export
from penstock.engine.operations.history_export import EVENTS_AT_ONCE
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.wire.operations.history_export import BundleWriter
from tests.server.client import Client
from tests.support import live
from tests.support.builders import an_event

EVENTS = 50_000
NUMBERS = itertools.count()
COMPLETE = {"type": "complete_workflow", "result": None}
CHARGE = {"type": "schedule_activity", "activity_type": "charge", "arguments": None}


@pytest.fixture
def name() -> str:
    """A queue and a workflow id of the test's own: the servers are shared."""
    return f"house-{next(NUMBERS)}"


async def start(client: Client, name: str, **fields: Any) -> str:
    body = {"workflow_id": name, "workflow_type": "order", "task_queue": name, "input": ["Ada"]} | fields
    run_id: str = (await client.post("/api/workflows", body)).expect(201).json["run_id"]
    return run_id


async def register(client: Client, name: str) -> None:
    body = {"worker_id": f"worker-{name}", "task_queue": name, "runtime": "python"}
    (await client.post("/api/worker/register", body, role="worker")).expect(201)


async def take(client: Client, name: str, kind: str = "workflow") -> dict[str, Any]:
    body = {"worker_id": f"worker-{name}", "task_queue": name, "timeout_seconds": 0}
    answer = (await client.post(f"/api/worker/{kind}-tasks/poll", body, role="worker")).expect(200)
    task: dict[str, Any] = answer.json["task"]
    assert task is not None
    return task


async def report(client: Client, task: dict[str, Any], how: str, **fields: Any) -> None:
    body = {
        "lease_owner": task["lease_owner"],
        "workflow_task_attempt": task["workflow_task_attempt"],
    } | fields
    path = f"/api/worker/workflow-tasks/{task['task_id']}/{how}"
    (await client.post(path, body, role="worker")).expect(200)


async def decide(client: Client, name: str, *commands: dict[str, Any]) -> None:
    await report(client, await take(client, name), "complete", commands=list(commands))


async def a_closed_run(client: Client, name: str) -> str:
    run_id = await start(client, name)
    await register(client, name)
    await decide(client, name, COMPLETE)
    return run_id


async def test_a_history_is_exported_whole_and_sealed(everywhere: Client, name: str) -> None:
    run_id = await a_closed_run(everywhere, name)
    by_id = (await everywhere.get(f"/api/workflows/{name}/history/export")).expect(200)
    by_run = (await everywhere.get(f"/api/workflows/{name}/runs/{run_id}/history/export")).expect(200)
    for reply in (by_id, by_run):
        report_ = verify_bundle_json(reply.raw.decode())
        assert (report_["status"], report_["findings"]) == ("ok", [])
        bundle = reply.json
        assert "control_plane" not in bundle
        assert bundle["workflow"]["run_id"] == run_id
        assert bundle["history_complete"] is True
        assert [each["event_type"] for each in bundle["history_events"]] == [
            "WorkflowStarted",
            "WorkflowCompleted",
        ]


async def test_an_export_is_compressed_for_callers_who_take_that(everywhere: Client, name: str) -> None:
    await start(everywhere, name)
    target = f"/api/workflows/{name}/history/export"
    packed = await everywhere.get(target, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    plain = json.loads(gzip.decompress(packed.raw))
    assert plain["workflow"]["workflow_id"] == name
    assert plain["history_complete"] is False
    assert "content-length" not in packed.headers


async def test_fifty_thousand_events_are_exported_a_few_at_a_time(tmp_path: Path) -> None:
    settings = load(live.TOKENS | {"DW_DATABASE_URL": f"sqlite:///{tmp_path / 'long.db'}"})
    async with assembly.assembled(settings) as server:
        client = Client(server.application)
        run_id = RunId(await start(client, "long"))
        await lengthen(server.ctx.store, run_id)
        parts = [len(part) async for part in exported(server.ctx, "long")]
        reply = (await client.get("/api/workflows/long/history/export")).expect(200)
    assert len(parts) > EVENTS / EVENTS_AT_ONCE
    assert max(parts) < sum(parts) / 100
    report_ = verify_bundle_json(reply.raw.decode())
    assert (report_["status"], report_["bundle"]["history_event_count"]) == ("ok", EVENTS)


async def exported(ctx: EngineContext, workflow_id: str) -> AsyncIterator[bytes]:
    bundle = await history_export.find(ctx, "default", workflow_id)
    writer = BundleWriter(bundle)
    yield writer.head()
    async for page in history_export.pages(ctx, bundle.run):
        yield writer.events(page)
    yield writer.tail()


async def lengthen(store: Store, run_id: RunId) -> None:
    """Give a run as many events as a run may have."""
    payload = json.dumps({"side_effect": "x" * 400})
    for first in range(2, EVENTS + 1, 5_000):
        lines = [
            an_event(run_id, number, "SideEffectRecorded", payload=payload)
            for number in range(first, min(first + 5_000, EVENTS + 1))
        ]

        async def operation(tx: Tx, lines: list[RecordedEvent] = lines) -> None:
            run = await tx.runs.lock(run_id)
            assert run is not None
            tx.histories.append(lines)
            tx.runs.save(replace(run, last_sequence=lines[-1].sequence))

        await store.transact(operation, key=run_id)


async def test_what_is_not_there_is_not_exported(everywhere: Client, name: str) -> None:
    (await everywhere.get("/api/workflows/nobody/history/export")).refused(404, "instance_not_found")
    await start(everywhere, name)
    target = f"/api/workflows/{name}/runs/nobody/history/export"
    (await everywhere.get(target)).refused(404, "run_not_found")
    (await everywhere.get(target, namespace="elsewhere")).refused(404, "instance_not_found")


async def test_the_inside_of_a_run(everywhere: Client, name: str) -> None:
    run_id = await start(everywhere, name)
    found = (await everywhere.get(f"/api/workflows/{name}/debug")).expect(200).json
    assert found["diagnostic_status"] == "needs_attention"
    assert [each["code"] for each in found["findings"]] == ["no_active_pollers"]
    assert found["control_plane"]["operation"] == "debug_workflow"
    assert found["control_plane"]["diagnostic_status"] == "needs_attention"
    assert found["why"]["binding"]["kind"] == "no_worker_for_type"
    assert [each["status"] for each in found["pending_workflow_tasks"]] == ["ready"]
    await register(everywhere, name)
    await decide(everywhere, name, CHARGE)
    target = f"/api/workflows/{name}/runs/{run_id}/debug?include_last_event_payload=true"
    found = (await everywhere.get(target)).expect(200).json
    assert found["diagnostic_status"] == "pending_work"
    [activity] = found["pending_activities"]
    assert (activity["activity_type"], activity["status"]) == ("charge", "pending")
    last = found["execution"]["last_event"]
    assert last["event_type"] == "ActivityScheduled"
    assert json.loads(last["payload_preview"])["activity_type"] == "charge"
    assert last["payload_summary"]["included"] is True
    assert found["task_queue"]["name"] == name
    assert found["compatibility"]["namespace_worker_fleet"]["active_count"] == 1
    (await everywhere.get("/api/workflows/nobody/debug")).refused(404, "instance_not_found")


async def test_a_failing_workflow_task_is_seen_repaired_and_counted(everywhere: Client, name: str) -> None:
    await start(everywhere, name, workflow_type=f"type-{name}")
    await register(everywhere, name)
    path = f"/api/workflows/{name}/repair"
    assert (await everywhere.post(path, {})).expect(200).json["outcome"] == "repair_not_needed"
    await report(everywhere, await take(everywhere, name), "fail", failure={"message": "no such activity"})
    found = (await everywhere.get(f"/api/workflows/{name}/debug")).expect(200).json
    assert [each["code"] for each in found["findings"]] == ["task_problem"]
    metrics = (await everywhere.get("/api/system/metrics", role="admin")).expect(200).json["metrics"]
    by_type = metrics["dw_workflow_task_consecutive_failures"]["by_workflow_type"]
    assert {
        "workflow_type": f"type-{name}",
        "max_consecutive_failures": 1,
        "failed_task_count": 1,
    } in by_type
    repaired = (await everywhere.post(path, {"request_id": "r-1"})).expect(200).json
    assert (repaired["outcome"], repaired["request_id"]) == ("repair_dispatched", "r-1")
    assert repaired["control_plane"]["operation"] == "repair"
    await decide(everywhere, name, COMPLETE)
    (await everywhere.post(path, {})).refused(409, "run_not_active")
    (await everywhere.post("/api/workflows/nobody/repair", {})).refused(404, "instance_not_found")


async def test_only_a_closed_run_is_put_aside_and_only_once(everywhere: Client, name: str) -> None:
    run_id = await start(everywhere, name)
    path = f"/api/workflows/{name}/archive"
    refused = (await everywhere.post(path, {"reason": "done with it"})).refused(409, "run_not_closed").json
    assert refused["outcome"] == "rejected_run_not_closed"
    assert refused["command_status"] == "rejected"
    await register(everywhere, name)
    await decide(everywhere, name, COMPLETE)
    assert (await everywhere.post(path, {})).expect(200).json["outcome"] == "archived"
    by_run = f"/api/workflows/{name}/runs/{run_id}/archive"
    assert (await everywhere.post(by_run, {})).expect(200).json["outcome"] == "archive_not_needed"
    history = (
        (await everywhere.get(f"/api/workflows/{name}/runs/{run_id}/history?derived=false")).expect(200).json
    )
    assert history["events"][-1]["event_type"] == "WorkflowCompleted"


async def test_the_namespace_in_numbers(everywhere: Client, name: str) -> None:
    await start(everywhere, name)
    found = (await everywhere.get("/api/system/operator-metrics", role="admin")).expect(200).json
    numbers = found["operator_metrics"]
    assert numbers["runs"]["current"] >= 1
    assert numbers["tasks"]["ready"] >= 1
    assert numbers["backlog"]["runnable_tasks"] == numbers["tasks"]["ready"]
    silent = await a_silent_namespace(everywhere, name)
    quiet = await everywhere.get("/api/system/operator-metrics", role="admin", namespace=silent)
    assert quiet.expect(200).json["operator_metrics"]["runs"]["total"] == 0


async def a_silent_namespace(client: Client, name: str) -> str:
    """A namespace for this test alone."""
    silent = f"silent-{name}".lower()
    (await client.post("/api/namespaces", {"name": silent}, role="admin")).expect(201)
    return silent


async def test_passes_find_nothing_where_nothing_is_wrong(everywhere: Client, name: str) -> None:
    admin = {"role": "admin", "namespace": await a_silent_namespace(everywhere, name)}
    repair = (await everywhere.get("/api/system/repair?limit=500", **admin)).expect(200).json
    assert (repair["candidates"]["total_candidates"], repair["candidates"]["scan_limit"]) == (0, 100)
    done = (await everywhere.post("/api/system/repair/pass", {}, **admin)).expect(200).json
    assert (done["dispatched_tasks"], done["missing_run_failures"]) == (0, [])
    late = (await everywhere.get("/api/system/activity-timeouts?limit=1", **admin)).expect(200).json
    assert (late["expired_count"], late["scan_limit"]) == (0, 1)
    done = (await everywhere.post("/api/system/activity-timeouts/pass", {}, **admin)).expect(200).json
    assert (done["processed"], done["failed"]) == (0, 0)
    old = (await everywhere.get("/api/system/retention", **admin)).expect(200).json
    assert (old["retention_days"], old["expired_run_count"]) == (30, 0)
    assert old["archive"] == {"is_configured": False, "trouble": None, "failures": 0}
    done = (await everywhere.post("/api/system/retention/pass", {}, **admin)).expect(200).json
    assert (done["processed"], done["pruned"]) == (0, 0)


async def test_what_is_named_in_a_pass_is_looked_at_and_left_alone_if_it_must_stay(
    everywhere: Client, name: str
) -> None:
    run_id = await start(everywhere, name)
    await register(everywhere, name)
    await decide(everywhere, name, CHARGE)
    done = await everywhere.post("/api/system/retention/pass", {"run_ids": [run_id, "nobody"]}, role="admin")
    assert [(each["outcome"], each["reason"]) for each in done.expect(200).json["results"]] == [
        ("skipped", "run_open"),
        ("skipped", "run_not_found"),
    ]
    activity_id = f"{run_id}-a1"
    timed = await everywhere.post(
        "/api/system/activity-timeouts/pass", {"execution_ids": [activity_id, "nobody-a1"]}, role="admin"
    )
    assert [each["reason"] for each in timed.expect(200).json["results"]] == [
        "not_overdue",
        "activity_not_found",
    ]
    elsewhere = await everywhere.post(
        "/api/system/activity-timeouts/pass",
        {"execution_ids": [activity_id]},
        role="admin",
        namespace="elsewhere",
    )
    assert elsewhere.expect(200).json["results"][0]["reason"] == "activity_not_found"
    await decide_nothing(everywhere, run_id)


async def decide_nothing(client: Client, run_id: str) -> None:
    done = await client.post("/api/system/repair/pass", {"run_ids": [run_id]}, role="admin")
    body = done.expect(200).json
    assert (body["selected_missing_task_candidates"], body["repaired_missing_tasks"]) == (1, 0)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/system/retention/pass", {"limit": 0}, "limit"),
        ("/api/system/retention/pass", {"limit": 101}, "limit"),
        ("/api/system/retention/pass", {"run_ids": ["x"] * 101}, "run_ids"),
        ("/api/system/repair/pass", {"run_ids": [""]}, "run_ids.0"),
        ("/api/system/activity-timeouts/pass", {"execution_ids": "all"}, "execution_ids"),
    ],
)
async def test_bad_input_is_refused(penstock: Client, path: str, body: Any, field: str) -> None:
    (await penstock.post(path, body, role="admin")).refused_fields(field)


@pytest.mark.parametrize(
    "path",
    [
        "/api/system/metrics",
        "/api/system/operator-metrics",
        "/api/system/repair",
        "/api/system/activity-timeouts",
        "/api/system/retention",
    ],
)
@pytest.mark.parametrize("role", ["operator", "worker"])
async def test_only_administrators_keep_house(penstock: Client, path: str, role: str) -> None:
    (await penstock.get(path, role=role)).refused(403, "forbidden")


async def test_what_this_server_deleted_is_among_its_metrics(penstock: Client) -> None:
    text = (await penstock.get("/metrics", role=None)).raw.decode()
    for name in ("penstock_runs_pruned", "penstock_runs_archived", "penstock_archive_failures"):
        assert f"{name} " in text
