"""Events in the contract's envelope, sent with a credential: outcomes, repetitions, named refusals."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from tests.server.bridges.webhook import fresh
from tests.server.client import Client, Reply

SCHEMA = "durable-workflow.v2.bridge-adapter-outcome.contract"


async def send(client: Client, adapter: str = "crm", **event: Any) -> Reply:
    return await client.post(f"/api/bridge-adapters/webhook/{adapter}", event)


def start(key: str, **target: Any) -> dict[str, Any]:
    fields = {"workflow_type": "greet", "task_queue": "q"} | target
    return {"action": "start_workflow", "idempotency_key": key, "target": fields}


def command(action: str, key: str, workflow_id: str, name: str) -> dict[str, Any]:
    kind = action.partition("_")[0]
    return {
        "action": action,
        "idempotency_key": key,
        "target": {"workflow_id": workflow_id, f"{kind}_name": name},
    }


async def open_run(client: Client) -> str:
    workflow_id = fresh("run")
    body = {"workflow_type": "greet", "workflow_id": workflow_id, "task_queue": "q"}
    (await client.post("/api/workflows", body)).expect(201)
    return workflow_id


async def test_an_event_starts_a_workflow_once(everywhere: Client) -> None:
    key = fresh("evt")
    event = start(key, business_key="invoice-7") | {
        "input": {"order": 7},
        "correlation": {"provider": "crm"},
    }
    first = (await send(everywhere, **event)).expect(202).json
    workflow_id = f"bridge-crm-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    assert first == {
        "schema": SCHEMA,
        "version": 1,
        "adapter": "crm",
        "action": "start_workflow",
        "accepted": True,
        "outcome": "accepted",
        "reason": None,
        "rejection_reason": None,
        "idempotency_key": key,
        "target": {"workflow_type": "greet", "task_queue": "q", "business_key": "invoice-7"},
        "correlation": {"provider": "crm"},
        "workflow_id": workflow_id,
        "run_id": first["run_id"],
        "workflow_type": "greet",
        "control_plane_outcome": "started_new",
    }
    again = (await send(everywhere, **event)).expect(200, "duplicate_start").json
    assert (again["accepted"], again["outcome"]) == (False, "duplicate")
    assert (again["workflow_id"], again["run_id"]) == (workflow_id, first["run_id"])
    assert again["control_plane_outcome"] == "returned_existing_active"
    described = (await everywhere.get(f"/api/workflows/{workflow_id}")).expect(200).json
    assert (described["business_key"], described["input"]) == ("invoice-7", [{"order": 7}])

    (await everywhere.post(f"/api/workflows/{workflow_id}/terminate", {})).expect(200)
    closed = (await send(everywhere, **event)).expect(200, "duplicate_start").json
    assert (closed["run_id"], closed["control_plane_outcome"]) == (
        first["run_id"],
        "returned_existing_closed",
    )


async def test_equal_events_at_the_same_time_start_one_run(everywhere: Client) -> None:
    event = start(fresh("evt"), workflow_id=fresh("order"), duplicate_policy="reject_duplicate")
    replies = await asyncio.gather(*(send(everywhere, **event) for _ in range(20)))
    assert sorted(each.status for each in replies) == [200] * 19 + [202]
    assert len({each.json["run_id"] for each in replies}) == 1


async def test_an_id_in_use_is_rejected_or_returned_as_the_policy_says(everywhere: Client) -> None:
    workflow_id = await open_run(everywhere)
    event = start(fresh("evt"), workflow_id=workflow_id, duplicate_policy="reject_duplicate")
    refused = (await send(everywhere, **event)).expect(422, "instance_already_started").json
    assert (refused["outcome"], refused["control_plane_outcome"]) == ("rejected", "rejected_duplicate")
    assert refused["workflow_id"] == workflow_id
    event = start(fresh("evt"), workflow_id=workflow_id, duplicate_policy="use_existing")
    (await send(everywhere, **event)).expect(200, "duplicate_start")


@pytest.mark.parametrize(
    ("action", "recorded"), [("signal_workflow", "signals"), ("update_workflow", "updates")]
)
async def test_a_command_is_recorded_once_whatever_its_input(
    everywhere: Client, action: str, recorded: str
) -> None:
    workflow_id = await open_run(everywhere)
    event = command(action, fresh("evt"), workflow_id, "advance")
    first = (await send(everywhere, **event, input=["Ada"])).expect(202).json
    assert (first["outcome"], first["workflow_id"]) == ("accepted", workflow_id)
    for repeated in (["Ada"], ["Grace"]):
        again = (await send(everywhere, **event, input=repeated)).expect(200).json
        assert (again["accepted"], again["outcome"]) == (False, "duplicate")
        assert again["control_plane_outcome"] == "deduped_existing_command"
        assert (again["workflow_id"], again["run_id"]) == (workflow_id, first["run_id"])
    assert (await everywhere.get(f"/api/workflows/{workflow_id}")).json["pending"][recorded] == 1

    other = await open_run(everywhere)
    elsewhere = event | {"target": event["target"] | {"workflow_id": other}}
    (await send(everywhere, **elsewhere)).expect(202)
    (await send(everywhere, "other-adapter", **event)).expect(202)


async def test_a_repeated_command_is_recognised_after_the_run_has_closed(everywhere: Client) -> None:
    workflow_id = await open_run(everywhere)
    event = command("signal_workflow", fresh("evt"), workflow_id, "advance")
    (await send(everywhere, **event)).expect(202)
    (await everywhere.post(f"/api/workflows/{workflow_id}/terminate", {})).expect(200)
    assert (await send(everywhere, **event)).expect(200).json["outcome"] == "duplicate"
    late = event | {"idempotency_key": fresh("evt")}
    (await send(everywhere, **late)).expect(422, "run_not_active")


async def test_refusals_are_outcomes_with_the_reasons_of_the_contract(everywhere: Client) -> None:
    key = fresh("evt")
    missing = command("signal_workflow", key, "nowhere", "advance")
    refused = (await send(everywhere, **missing)).expect(422, "unknown_target").json
    assert refused["schema"] == SCHEMA
    assert (refused["accepted"], refused["outcome"]) == (False, "rejected")
    assert (refused["action"], refused["idempotency_key"]) == ("signal_workflow", key)
    assert refused["rejection_reason"] == "instance_not_found"
    assert refused["target"] == {"workflow_id": "nowhere", "signal_name": "advance"}
    assert refused["message"]

    unknown = start(key) | {"action": "handoff_external_task"}
    refused = (await send(everywhere, **unknown)).expect(422, "unsupported_action").json
    assert refused["action"] == "handoff_external_task"
    (await send(everywhere, "a%20b", **start(key))).expect(422, "unsupported_routing")
    (await send(everywhere, "a" * 65, **start(key))).expect(422, "unsupported_routing")
    malformed: list[dict[str, Any]] = [
        {},
        start("k" * 256),
        start(key) | {"target": []},
        start(key) | {"target": {}},
        start(key) | {"input": 7},
        start(key, workflow_type=""),
        start(key, duplicate_policy="fail"),
    ]
    for event in malformed:
        assert (await send(everywhere, **event)).expect(422, "malformed_payload").json["errors"]
    codec = start(key) | {"input": {"codec": "json", "blob": "[]"}}
    (await send(everywhere, **codec)).expect(422, "malformed_payload")
    path = "/api/bridge-adapters/webhook/crm"
    (await everywhere.request("POST", path, b"{")).expect(422, "malformed_payload")
    (await everywhere.request("POST", path, b"{}", headers={"content-type": "text/plain"})).expect(
        422, "malformed_payload"
    )
    (await everywhere.request("POST", path, b"x" * 2_100_000)).expect(422, "payload_too_large")
    (await send(everywhere, **start(key))).expect(202)


async def test_unknown_fields_of_a_target_are_ignored_and_named(everywhere: Client) -> None:
    event = start(fresh("evt"), colour="red")
    warnings = (await send(everywhere, **event)).expect(202).json["warnings"]
    assert "colour" in str(warnings)


async def test_a_credential_of_an_operator_is_needed(everywhere: Client) -> None:
    path, event = "/api/bridge-adapters/webhook/crm", start(fresh("evt"))
    (await everywhere.post(path, event, role=None)).refused(401, "unauthorized")
    (await everywhere.post(path, event, role="worker")).refused(403, "forbidden")
    (await everywhere.post(path, event, namespace="nowhere")).refused(404, "namespace_not_found")
    version = {"x-durable-workflow-control-plane-version": None}
    (await everywhere.post(path, event, headers=version)).refused(400, "missing_control_plane_version")


async def test_discovery_describes_the_outcomes(everywhere: Client) -> None:
    info = (await everywhere.get("/api/cluster/info")).expect(200).json
    assert info["capabilities"]["bridge_adapter_outcome_contract"] is True
    manifest = info["bridge_adapter_outcome_contract"]
    assert (manifest["schema"], manifest["version"]) == (SCHEMA, 1)
    assert manifest["boundary"]["allowed_actions"] == ["start_workflow", "signal_workflow", "update_workflow"]
    assert manifest["outcomes"].keys() == {"accepted", "duplicate", "rejected", "unauthorized"}
    assert {"schema", "reason", "target", "rejection_reason"} <= set(manifest["visibility"]["outcome_fields"])
