"""Every reason of this release, provoked once over HTTP, with the status of the contract."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.errors import Reason
from penstock.server.problems import STATUS
from tests.acceptance.cluster import Cluster, Hand, Json, Reply, stranger, until

SETTINGS = {
    "DW_MAX_PAYLOAD_BYTES": "20000",
    "DW_MAX_PENDING_TIMERS": "3",
    "DW_MAX_MEMO_BYTES": "2000",
    "DW_MAX_SEARCH_ATTRIBUTES": "5",
    "DW_WORKFLOW_TASK_TIMEOUT": "2",
}
TRIES_MAX = 10
"""For the reasons that exist only in the moment between an end and the sweeper that records it."""

Provoke = Callable[[Cluster], Awaitable[Reply]]
PROVOKED: dict[Reason, Provoke] = {}
ELSEWHERE = {
    Reason.UNKNOWN_SIGNAL: "the tests of SDK flows, which register contracts, and those of the engine's signals",
    Reason.INVALID_SIGNAL_ARGUMENTS: "the tests of the engine's signals",
    Reason.UNKNOWN_UPDATE: "the tests of SDK flows, and of the engine's requests",
    Reason.INVALID_UPDATE_ARGUMENTS: "the tests of the engine's requests",
    Reason.UPDATE_FAILED: "the tests of SDK flows: a handler that fails",
    Reason.REQUEST_ID_CONFLICT: "the server's tests of streams, and the engine's of signals and updates",
    Reason.ACTIVITY_CANCELLED: "the tests of SDK flows: an activity that a selection gave up",
    Reason.RUN_NOT_CLOSED: "the server's tests of keeping house",
    Reason.ANOTHER_RUN_OPEN: "the server's tests of operations on runs",
    Reason.RUN_IN_USE: "the engine's tests of the deletion of runs",
    Reason.RUN_NOT_COPYABLE: "the engine's tests of resets",
    Reason.ACTIVITY_NOT_ACTIVE: "the server's tests of operations on activities",
    Reason.ACTIVITY_RUNNING: "the server's tests of operations on activities",
    Reason.ARCHIVE_UNAVAILABLE: "the server's and the engine's tests of retention",
    Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE: "the engine's tests of what a review found: a history too long to ask",
    Reason.SERVER_ERROR: "test_drivers: a driver without any secret",
    Reason.SIGNATURE_INVALID: "test_drivers",
    Reason.SIGNATURE_STALE: "test_drivers",
    Reason.SIGNATURE_REPLAYED: "test_drivers",
    Reason.TOO_MANY_AUTH_FAILURES: "test_authority",
    Reason.DUPLICATE_START: "test_contract_events: it is an outcome, not a refusal",
    Reason.SIGNATURE_MISSING: "test_webhooks, with declared adapters",
    Reason.AUTH_FAILED: "test_webhooks, with declared adapters",
    Reason.ADAPTER_UNAVAILABLE: "test_webhooks, with declared adapters",
    Reason.MAPPING_VALUE_MISSING: "test_webhooks, with declared adapters",
    Reason.EXTERNAL_STORAGE_NOT_CONFIGURED: "test_payload_routes",
    Reason.EXTERNAL_STORAGE_DISABLED: "the tests of the engine's external payloads",
    Reason.EXTERNAL_PAYLOAD_NOT_FOUND: "test_payload_routes",
    Reason.EXTERNAL_PAYLOAD_UNAVAILABLE: "test_payload_routes",
    Reason.EXTERNAL_PAYLOAD_UNSUPPORTED: "test_payload_routes",
    Reason.EXTERNAL_PAYLOAD_OVERSIZED: "test_payload_routes",
    Reason.EXTERNAL_PAYLOAD_INTEGRITY_MISMATCH: "test_payload_routes",
    Reason.EXTERNAL_PAYLOAD_EXPIRED: "the tests of the engine's external payloads",
    Reason.STORAGE_DRIVER_UNAVAILABLE: "test_payload_routes",
    Reason.ZONE_DATA_OUTDATED: "the engine's tests of zone data",
    Reason.RUN_CAP_REACHED: "the server's tests of caps on runs",
    Reason.RUN_CAP_CONTRADICTION: "the server's tests of caps on runs",
    Reason.CHANGE_SET_NOT_FOUND: "the server's tests of change sets",
    Reason.CHANGE_SET_STALE: "the server's tests of change sets",
    Reason.CHANGE_SET_STATE_CONFLICT: "the server's tests of change sets",
    Reason.CHANGE_NEEDS_APPROVAL: "the server's tests of change sets",
    Reason.CHANGE_PLAN_MOVED: "the server's tests of change sets",
    Reason.OWN_CHANGE_SET: "the server's tests of change sets",
    Reason.UNIQUE_KEY_HELD: "the server's tests of unique keys",
    Reason.SIMULATION_NOT_FOUND: "the server's tests of simulations",
    Reason.TOO_MANY_SIMULATIONS: "the server's tests of simulations",
    Reason.SCHEDULE_VERSION_CONFLICT: "the server's tests of schedule queries",
    Reason.LONG_POLL_CAPACITY_EXHAUSTED: "test_lifecycle",
    Reason.CONFIGURATION_INVALID: "test_lifecycle: the exit of a server that did not start",
    Reason.PORT_IN_USE: "test_lifecycle",
    Reason.STORE_IN_USE: "test_lifecycle",
    Reason.SCHEMA_TOO_NEW: "test_lifecycle",
    Reason.SCHEMA_OUTDATED: "test_lifecycle",
    Reason.HEAD_TOO_LARGE: "the tests of raw sockets",
    Reason.REQUEST_TIMEOUT: "the tests of raw sockets",
    Reason.HISTORICAL_RUN_COMMAND_REJECTED: "nobody yet: no command of this release makes a second run",
    Reason.RUN_ALREADY_CLOSED: "nobody: it is a guard, for a run's leases end together with it",
    Reason.SERVER_DRAINING: "nobody: it guards a store that closes, when the last request has been answered",
    Reason.TOO_MANY_FAIRNESS_KEYS: "the tests of the engine: it takes a hundred thousand keys",
    Reason.STORE_DAMAGED: "the tests with faults",
    Reason.STORE_UNAVAILABLE: "the tests with faults",
    Reason.COORDINATION_UNAVAILABLE: "the tests with faults: readiness without Redis",
    Reason.OUTCOME_UNKNOWN: "the tests with faults",
    Reason.STORAGE_FULL: "the tests with faults",
    Reason.UPDATE_VALIDATOR_REJECTED: "test_update_validation",
    Reason.UPDATE_VALIDATOR_WORKER_UNAVAILABLE: "test_update_validation",
    Reason.UPDATE_VALIDATOR_WORKER_INCOMPATIBLE: "test_update_validation",
    Reason.UPDATE_VALIDATION_CAPABILITY_UNSUPPORTED: "test_update_validation",
    Reason.UPDATE_VALIDATION_TASK_NOT_CLAIMED: "test_update_validation",
    Reason.UPDATE_VALIDATION_EXECUTION_TIMEOUT: "test_update_validation",
    Reason.UPDATE_VALIDATION_WORKER_FAILED: "test_update_validation",
    Reason.STALE_UPDATE_VALIDATION_COMPLETION: "test_update_validation",
    Reason.UPDATE_VALIDATION_TASK_NOT_LEASED: "the tests of the engine: it is so for a moment only",
    Reason.UPDATE_VALIDATION_LEASE_EXPIRED: "the tests of the engine: it is so for a moment only",
}


def provokes(reason: Reason) -> Callable[[Provoke], Provoke]:
    def note(provoke: Provoke) -> Provoke:
        PROVOKED[reason] = provoke
        return provoke

    return note


def raised_somewhere() -> set[Reason]:
    """The reasons that the server's sources name, apart from the table of statuses and the list of them all."""
    root = Path(penstock.__file__).parent
    files = [
        path
        for path in root.rglob("*.py")
        if path.name not in ("problems.py", "markdown.py", "errors.py")
        and path.relative_to(root).parts[0] != "sdk"
    ]
    named = {name for path in files for name in re.findall(r"\bReason\.([A-Z_]+)", path.read_text("utf-8"))}
    return {Reason[name] for name in named}


def test_no_reason_is_without_a_request_that_provokes_it() -> None:
    queries = {reason for reason in Reason if "query" in reason}
    assert raised_somewhere() - queries - PROVOKED.keys() - ELSEWHERE.keys() == set()


@pytest.mark.parametrize("reason", PROVOKED, ids=str)
async def test_a_reason_comes_with_its_status_and_prose_for_people(scene: Cluster, reason: Reason) -> None:
    reply = await PROVOKED[reason](scene)
    reply.expect(STATUS[reason], reason.value)
    assert isinstance(reply["message"], str)
    assert reply["message"]


# --- webhooks ---


async def webhook(scene: Cluster, adapter: str = "crm", **fields: Any) -> Reply:
    event = {
        "action": "start_workflow",
        "idempotency_key": "webhook-1",
        "target": {"workflow_type": "greeter", "task_queue": "q"},
    }
    return await scene.post(f"/api/bridge-adapters/webhook/{adapter}", event | fields)


@provokes(Reason.MALFORMED_PAYLOAD)
async def webhook_without_a_workflow_type(scene: Cluster) -> Reply:
    return await webhook(scene, target={})


@provokes(Reason.UNSUPPORTED_ACTION)
async def webhook_with_an_unknown_action(scene: Cluster) -> Reply:
    return await webhook(scene, action="handoff_external_task")


@provokes(Reason.UNSUPPORTED_ROUTING)
async def webhook_to_an_adapter_whose_name_is_too_long(scene: Cluster) -> Reply:
    return await webhook(scene, "a" * 65)


@provokes(Reason.UNKNOWN_TARGET)
async def webhook_that_signals_a_workflow_that_does_not_exist(scene: Cluster) -> Reply:
    target = {"workflow_id": "nowhere", "signal_name": "advance"}
    return await webhook(scene, action="signal_workflow", target=target)


# --- schedules ---


async def schedule(scene: Cluster, schedule_id: str, **fields: Any) -> Reply:
    asked = {
        "schedule_id": schedule_id,
        "spec": {"intervals": [{"every": "PT1S"}]},
        "action": {"workflow_type": "greeter", "task_queue": "q"},
        "paused": True,
    }
    return await scene.post("/api/schedules", asked | fields)


async def backfill(scene: Cluster, schedule_id: str, start: str, end: str) -> Reply:
    (await schedule(scene, schedule_id)).expect(201)
    asked = {"start_time": start, "end_time": end, "overlap_policy": "allow_all"}
    return await scene.post(f"/api/schedules/{schedule_id}/backfill", asked)


@provokes(Reason.SCHEDULE_NOT_FOUND)
async def schedule_that_nobody_created(scene: Cluster) -> Reply:
    return await scene.get("/api/schedules/never")


@provokes(Reason.SCHEDULE_ALREADY_EXISTS)
async def schedule_of_an_id_in_use(scene: Cluster) -> Reply:
    (await schedule(scene, "twice")).expect(201)
    return await schedule(scene, "twice")


@provokes(Reason.MEMO_TOO_LARGE)
async def schedule_with_a_large_memo(scene: Cluster) -> Reply:
    return await schedule(scene, "large", memo={"note": "x" * 5_000})


@provokes(Reason.INVALID_TIME_RANGE)
async def backfill_that_ends_before_it_begins(scene: Cluster) -> Reply:
    return await backfill(scene, "backwards", "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z")


@provokes(Reason.BACKFILL_TOO_LARGE)
async def backfill_of_a_day_of_seconds(scene: Cluster) -> Reply:
    return await backfill(scene, "seconds", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")


@provokes(Reason.INVALID_AFTER_SEQUENCE)
async def schedule_history_after_a_word(scene: Cluster) -> Reply:
    (await schedule(scene, "recorded")).expect(201)
    return await scene.get("/api/schedules/recorded/history?after_sequence=soon")


# --- runs ---


@provokes(Reason.RUN_NOT_REDRIVABLE)
async def redrive_of_an_open_run(scene: Cluster) -> Reply:
    begun = (await scene.start("open")).expect(201)
    return await scene.post(f"/api/workflows/open/runs/{begun['run_id']}/redrive", {})


@provokes(Reason.NOT_A_DECISION_POINT)
async def reset_of_a_run_that_has_decided_nothing(scene: Cluster) -> Reply:
    (await scene.start("open")).expect(201)
    return await scene.post("/api/workflows/open/reset", {"event": 1})


@provokes(Reason.COOPERATIVE_CANCELLATION_NOT_SUPPORTED)
async def cleanup_that_no_worker_can_be_asked_for(scene: Cluster) -> Reply:
    (await scene.start("open")).expect(201)
    return await scene.post("/api/workflows/open/request-cancellation", {"reason": "enough"})


async def deliver(scene: Cluster, sequence: int, *commands: Json, request: str = "") -> Reply:
    """Deliver a cancellation that was requested after the code had sent these commands, and their timer had fired."""
    worker = await scene.worker("careful", capabilities=["cooperative_cancellation"])
    (await scene.start("open")).expect(201)
    if commands:
        (await worker.decide(await worker.take(), *commands)).expect(200)
        await until(lambda: _has_fired(scene))
    asked = (await scene.post("/api/workflows/open/request-cancellation", {})).expect(200)
    named = {"request_id": request or asked["cancellation_request"]["request_id"]}
    call = {"sequence": sequence, "call_kind": "timer"}
    return await worker.report(await worker.take(), "deliver-cancellation", **named, **call)


async def _has_fired(scene: Cluster) -> bool:
    return "TimerFired" in await scene.event_types("open")


@provokes(Reason.CANCELLATION_NOT_REQUESTED)
async def delivery_of_another_request(scene: Cluster) -> Reply:
    return await deliver(scene, 1, request="never")


@provokes(Reason.CANCELLATION_CALL_MISMATCH)
async def delivery_at_a_call_that_does_not_exist(scene: Cluster) -> Reply:
    return await deliver(scene, 9)


@provokes(Reason.CANCELLATION_CALL_RESOLVED)
async def delivery_at_a_call_that_has_a_result(scene: Cluster) -> Reply:
    return await deliver(scene, 1, {"type": "start_timer", "delay_seconds": 0})


@provokes(Reason.UPDATE_NOT_FOUND)
async def update_that_nobody_sent(scene: Cluster) -> Reply:
    (await scene.start("without-updates")).expect(201)
    return await scene.get("/api/workflows/without-updates/updates/never")


# --- streams ---


async def a_stream(scene: Cluster) -> str:
    """Where the streams of a new run are."""
    begun = (await scene.start("writer")).expect(201)
    return f"/api/workflows/writer/runs/{begun['run_id']}/streams"


@provokes(Reason.WORKFLOW_STREAM_NOT_FOUND)
async def stream_that_nobody_wrote(scene: Cluster) -> Reply:
    return await scene.get(await a_stream(scene) + "/log")


@provokes(Reason.WORKFLOW_STREAM_CLOSED)
async def item_after_the_end(scene: Cluster) -> Reply:
    streams = await a_stream(scene)
    (await scene.post(f"{streams}/log/close", {})).expect(200)
    return await scene.post(f"{streams}/log/items", {"items": [{"payload": 1}]})


@provokes(Reason.WORKFLOW_STREAM_FULL)
async def items_that_nobody_reads(scene: Cluster) -> Reply:
    items = [{"payload": 1}, {"payload": 2}]
    reply = await scene.post(await a_stream(scene) + "/log/items", {"items": items, "max_pending_items": 1})
    assert reply.headers["Retry-After"] == "1"
    return reply


@provokes(Reason.UPDATE_VALIDATION_TASK_NOT_FOUND)
async def approval_that_nobody_waits_for(scene: Cluster) -> Reply:
    body = {"lease_owner": "w1", "update_validation_attempt": 1}
    return await scene.post("/api/worker/update-validation-tasks/nothing/approve", body, role="worker")


# --- settings of task queues ---


@provokes(Reason.CONFIG_VERSION_CONFLICT)
async def settings_changed_by_somebody_else(scene: Cluster) -> Reply:
    return await scene.config(queue_rps_limit=5, if_version=7)


@provokes(Reason.OVERRIDE_CONFLICT)
async def weight_set_and_unset_at_once(scene: Cluster) -> Reply:
    return await scene.config(set_fairness_weight_overrides={"a": 2}, unset_fairness_weight_overrides=["a"])


@provokes(Reason.RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS)
async def rate_limit_for_workflow_tasks(scene: Cluster) -> Reply:
    return await scene.config(kind="workflow", queue_rps_limit=5)


@provokes(Reason.JOURNAL_OFF)
async def journal_that_is_not_kept(scene: Cluster) -> Reply:
    return await scene.get("/api/system/journal", role="admin")


# --- the request itself ---


@provokes(Reason.PAYLOAD_TOO_LARGE)
async def too_large(scene: Cluster) -> Reply:
    reply = await scene.start("x", input=["y" * 20_000])
    assert reply["limit"] == 20_000
    return reply


@provokes(Reason.UNSUPPORTED_MEDIA_TYPE)
async def not_json(scene: Cluster) -> Reply:
    return await scene.start("x", more={"Content-Type": "application/x-www-form-urlencoded"})


@provokes(Reason.UNSUPPORTED_CONTENT_ENCODING)
async def packed(scene: Cluster) -> Reply:
    return await scene.start("x", more={"Content-Encoding": "gzip"})


@provokes(Reason.MALFORMED_JSON)
async def broken_json(scene: Cluster) -> Reply:
    reply = await scene.post("/api/workflows", raw=b'{"workflow_type": }')
    assert "json_error" in reply.body
    return reply


@provokes(Reason.MALFORMED_REQUEST)
async def parameter_twice(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows?status=running&status=failed")


@provokes(Reason.VALIDATION_FAILED)
async def field_missing(scene: Cluster) -> Reply:
    return await scene.post("/api/workflows", {})


@provokes(Reason.NOT_FOUND)
async def no_such_path(scene: Cluster) -> Reply:
    return await scene.get("/api/nothing")


@provokes(Reason.METHOD_NOT_ALLOWED)
async def no_such_method(scene: Cluster) -> Reply:
    return await scene.ask("DELETE", "/api/workflows")


@provokes(Reason.MISDIRECTED_HOST)
async def another_host(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows", more={"Host": "example.org"})


@provokes(Reason.TOKEN_IN_URL)
async def token_in_url(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows?access_token=x")


# --- who asks, and in which protocol ---


@provokes(Reason.UNAUTHORIZED)
async def nobody(scene: Cluster) -> Reply:
    return await scene.ask("GET", "/api/workflows", role=None, more=stranger())


@provokes(Reason.FORBIDDEN)
async def wrong_role(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows", role="worker")


@provokes(Reason.MISSING_CONTROL_PLANE_VERSION)
async def no_control_version(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows", more={"X-Durable-Workflow-Control-Plane-Version": None})


@provokes(Reason.UNSUPPORTED_CONTROL_PLANE_VERSION)
async def old_control_version(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows", more={"X-Durable-Workflow-Control-Plane-Version": "1"})


@provokes(Reason.MISSING_PROTOCOL_VERSION)
async def no_worker_version(scene: Cluster) -> Reply:
    more = {"X-Durable-Workflow-Protocol-Version": None}
    return await scene.post("/api/worker/register", {}, role="worker", more=more)


@provokes(Reason.UNSUPPORTED_PROTOCOL_VERSION)
async def new_worker_version(scene: Cluster) -> Reply:
    more = {"X-Durable-Workflow-Protocol-Version": "2.0"}
    return await scene.post("/api/worker/register", {}, role="worker", more=more)


# --- namespaces ---


@provokes(Reason.NAMESPACE_NOT_FOUND)
async def nowhere(scene: Cluster) -> Reply:
    return await scene.at("nowhere").get("/api/workflows")


@provokes(Reason.NAMESPACE_ALREADY_EXISTS)
async def again(scene: Cluster) -> Reply:
    return await scene.post("/api/namespaces", {"name": scene.namespace}, role="admin")


@provokes(Reason.NAMESPACE_NOT_EMPTY)
async def inhabited(scene: Cluster) -> Reply:
    await scene.worker("w-1")
    return await scene.ask("DELETE", f"/api/namespaces/{scene.namespace}", role="admin")


@provokes(Reason.NAMESPACE_PROTECTED)
async def the_default(scene: Cluster) -> Reply:
    return await scene.ask("DELETE", "/api/namespaces/default", role="admin")


# --- runs ---


@provokes(Reason.INSTANCE_NOT_FOUND)
async def no_workflow(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows/nobody")


@provokes(Reason.RUN_NOT_FOUND)
async def no_run(scene: Cluster) -> Reply:
    (await scene.start("order-1")).expect(201)
    return await scene.get("/api/workflows/order-1/runs/nothing")


@provokes(Reason.INSTANCE_ALREADY_STARTED)
async def id_taken(scene: Cluster) -> Reply:
    (await scene.start("order-1")).expect(201)
    return await scene.start("order-1")


@provokes(Reason.RUN_NOT_ACTIVE)
async def ended_already(scene: Cluster) -> Reply:
    (await scene.start("order-1")).expect(201)
    (await scene.post("/api/workflows/order-1/cancel", {})).expect(200)
    return await scene.post("/api/workflows/order-1/terminate", {})


@provokes(Reason.RUN_IS_ENDING)
async def signalled_whenever_it_would_end(scene: Cluster) -> Reply:
    (await scene.start("order-1")).expect(201)
    worker = await scene.worker("w1")
    for _ in range(20):
        task = await worker.take()
        reply = await scene.post("/api/workflows/order-1/signal/poke", {})
        if reply.status != 202:
            break
        (await worker.finish(task)).expect(409, "task_not_leased")
    assert reply.headers["Retry-After"] == "1"
    (await worker.finish(task)).expect(200)
    (await scene.post("/api/workflows/order-1/signal/poke", {})).expect(409, "run_not_active")
    return reply


@provokes(Reason.ACTIVITY_NOT_FOUND)
async def no_activity(scene: Cluster) -> Reply:
    return await scene.get("/api/activities/nobody")


@provokes(Reason.INVALID_PAGE_TOKEN)
async def bad_token(scene: Cluster) -> Reply:
    return await scene.get("/api/workflows?next_page_token=%21")


@provokes(Reason.INVALID_QUERY)
async def query_with_a_mistake(scene: Cluster) -> Reply:
    reply = await scene.get("/api/workflows?query=WorkflowType+%3D")
    assert (reply["position"], reply["expected"]) == (
        15,
        "a value: a text in quotes, a number, true or false",
    )
    return reply


# --- search attributes ---


@provokes(Reason.NAME_RESERVED)
async def attribute_that_every_run_has(scene: Cluster) -> Reply:
    return await scene.post("/api/search-attributes", {"name": "Status", "type": "keyword"})


@provokes(Reason.ATTRIBUTE_ALREADY_EXISTS)
async def attribute_twice(scene: Cluster) -> Reply:
    (await scene.post("/api/search-attributes", {"name": "Customer", "type": "keyword"})).expect(201)
    return await scene.post("/api/search-attributes", {"name": "Customer", "type": "int"})


@provokes(Reason.SYSTEM_ATTRIBUTE)
async def attribute_that_stays(scene: Cluster) -> Reply:
    return await scene.ask("DELETE", "/api/search-attributes/Status")


@provokes(Reason.ATTRIBUTE_NOT_FOUND)
async def no_attribute(scene: Cluster) -> Reply:
    return await scene.ask("DELETE", "/api/search-attributes/Nobody")


@provokes(Reason.SEARCH_ATTRIBUTE_LIMIT_REACHED)
async def too_many_attributes(scene: Cluster) -> Reply:
    for number in range(5):
        body = {"name": f"A{number}", "type": "int"}
        (await scene.post("/api/search-attributes", body)).expect(201)
    return await scene.post("/api/search-attributes", {"name": "A5", "type": "int"})


# --- limits of a run ---


@provokes(Reason.STRUCTURAL_LIMIT_EXCEEDED)
async def too_many_timers(scene: Cluster) -> Reply:
    worker, task = await leased(scene)
    reply = await worker.decide(task, *[{"type": "start_timer", "delay_seconds": 9}] * 4)
    assert (reply["limit_kind"], reply["current_value"], reply["configured_limit"]) == (
        "pending_timer_count",
        4,
        3,
    )
    assert reply["outcome"] == "rejected"
    return reply


@provokes(Reason.INVALID_COMMANDS)
async def out_of_step(scene: Cluster) -> Reply:
    worker, task = await leased(scene)
    place = {
        "parallel_group_id": "timers:7:1",
        "parallel_group_kind": "timer",
        "parallel_group_base_sequence": 7,
        "parallel_group_size": 1,
        "parallel_group_index": 0,
    }
    group = place | {"parallel_group_path": [place]}
    reply = await worker.decide(task, {"type": "start_timer", "delay_seconds": 9} | group)
    assert reply["expected_sequence"] == 1
    return reply


# --- workers and polls ---


@provokes(Reason.WORKER_NOT_FOUND)
async def no_worker(scene: Cluster) -> Reply:
    return await scene.get("/api/workers/nobody")


@provokes(Reason.WORKER_NOT_REGISTERED)
async def not_registered(scene: Cluster) -> Reply:
    return await Hand(scene, "nobody", "q").poll()


@provokes(Reason.WORKFLOW_DEFINITION_CHANGED)
async def changed_code(scene: Cluster) -> Reply:
    await scene.worker("w-1", workflow_definition_fingerprints={"t": "1"})
    body = {"worker_id": "w-1", "task_queue": "q", "runtime": "go"}
    changed = body | {"workflow_definition_fingerprints": {"t": "2"}}
    return await scene.post("/api/worker/register", changed, role="worker")


@provokes(Reason.TASK_QUEUE_MISMATCH)
async def another_queue(scene: Cluster) -> Reply:
    await scene.worker("w-1")
    return await Hand(scene, "w-1", "other").poll()


@provokes(Reason.BUILD_ID_MISMATCH)
async def another_build(scene: Cluster) -> Reply:
    return await (await scene.worker("w-1", build_id="b1")).poll(build_id="b2")


@provokes(Reason.WORKER_DRAINING)
async def drained(scene: Cluster) -> Reply:
    worker = await scene.worker("w-1", build_id="b1")
    (await scene.post("/api/task-queues/q/build-ids/drain", {"build_id": "b1"})).expect(200)
    return await worker.poll()


# --- leases ---


async def leased(scene: Cluster, name: str = "order-1", **fields: Any) -> tuple[Hand, Json]:
    worker = await scene.worker("w-1")
    (await scene.start(name, **fields)).expect(201)
    return worker, await worker.take()


async def leased_activity(scene: Cluster) -> tuple[Hand, Json]:
    worker = await scene.worker("w-1")
    (await scene.start_activity("charge-1")).expect(201)
    return worker, await worker.take("activity")


@provokes(Reason.TASK_NOT_FOUND)
async def no_task(scene: Cluster) -> Reply:
    worker = await scene.worker("w-1")
    return await worker.finish({"task_id": "nothing", "workflow_task_attempt": 1})


@provokes(Reason.TASK_NOT_LEASED)
async def not_leased(scene: Cluster) -> Reply:
    worker, task = await leased(scene)
    (await worker.report(task, "fail", failure={"message": "rest"})).expect(200)
    return await worker.report(task, "heartbeat")


@provokes(Reason.LEASE_EXPIRED)
async def expired(scene: Cluster) -> Reply:
    for number in range(TRIES_MAX):
        worker, task = await leased(scene, f"order-{number}")
        while (reply := await worker.report(task, "history", next_history_page_token="MA==")).status == 200:
            pass
        if reply.reason == "lease_expired":
            return reply
        (await worker.finish(await worker.take())).expect(200)
    raise AssertionError("the sweeper was always quicker")


@provokes(Reason.LEASE_OWNER_MISMATCH)
async def not_mine(scene: Cluster) -> Reply:
    _, task = await leased(scene)
    return await Hand(scene, "thief", "q").finish(task)


@provokes(Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH)
async def other_attempt(scene: Cluster) -> Reply:
    worker, task = await leased(scene)
    return await worker.finish(task | {"workflow_task_attempt": 2})


@provokes(Reason.COMPLETION_CONFLICT)
async def two_outcomes(scene: Cluster) -> Reply:
    worker, task = await leased_activity(scene)
    (await worker.finish(task, 1)).expect(200)
    return await worker.finish(task, 2)


@provokes(Reason.RUN_CLOSED)
async def run_closed(scene: Cluster) -> Reply:
    worker, task = await leased(scene)
    (await scene.post("/api/workflows/order-1/terminate", {})).expect(200)
    return await worker.finish(task)


@provokes(Reason.RUN_TIMED_OUT)
async def run_timed_out(scene: Cluster) -> Reply:
    for number in range(TRIES_MAX):
        worker, task = await leased(scene, f"order-{number}", run_timeout_seconds=1)
        ends = datetime.fromisoformat((await scene.describe(f"order-{number}"))["run_deadline_at"])
        await asyncio.sleep((ends - datetime.now(UTC)).total_seconds() + 0.001)
        reply = await worker.finish(task)
        if reply.reason == "run_timed_out":
            return reply
    raise AssertionError("the sweeper was always quicker")


@provokes(Reason.RUN_CANCELLED)
async def run_cancelled(scene: Cluster) -> Reply:
    worker, task = await leased_activity(scene)
    (await scene.post("/api/activities/charge-1/cancel", {})).expect(200)
    return await worker.finish(task)


@provokes(Reason.RUN_TERMINATED)
async def run_terminated(scene: Cluster) -> Reply:
    worker, task = await leased_activity(scene)
    (await scene.post("/api/workflows/charge-1/terminate", {})).expect(200)
    return await worker.finish(task)


@provokes(Reason.ATTEMPT_NOT_FOUND)
async def no_attempt(scene: Cluster) -> Reply:
    worker, task = await leased_activity(scene)
    return await worker.finish(task | {"activity_attempt_id": "7.nothing"})


@provokes(Reason.TASK_NOT_STARTED)
async def no_permit(scene: Cluster) -> Reply:
    worker = await scene.worker("w-1")
    (await scene.start_activity("charge-1")).expect(201)
    return await worker.finish(await worker.take("activity", claim_lease_ms=30_000))


@provokes(Reason.STALE_ATTEMPT)
async def stale_attempt(scene: Cluster) -> Reply:
    worker, task = await leased_activity(scene)
    (await scene.ask("DELETE", "/api/worker/registrations/w-1", role="worker")).expect(200)
    await (await scene.worker("w-2")).take("activity")
    return await worker.finish(task)
