"""What `cluster/info` tells a client of the contract, and that it is true."""

from __future__ import annotations

import pytest

from tests.server.contract.conftest import Tenant

REQUIRED = {
    "server_id",
    "version",
    "default_namespace",
    "supported_sdk_versions",
    "capabilities",
    "worker_fleet",
    "task_repair",
    "limits",
    "structural_limits",
    "topology",
    "coordination_health",
    "client_compatibility",
    "surface_stability_contract",
    "platform_protocol_specs",
    "platform_conformance_suite",
    "sdk_neutrality_contract",
    "auth_composition_contract",
    "control_plane",
    "worker_protocol",
    "bridge_adapter_outcome_contract",
    "replay_verification_contract",
}
MEMBERS = {
    "worker_fleet": ["namespace", "active_workers", "queues", "build_ids", "workers"],
    "task_repair": ["policy", "candidates"],
    "topology": ["schema", "version", "supported_shapes", "current_shape"],
    "coordination_health": ["schema", "version", "status", "checks"],
    "surface_stability_contract": [
        "schema", "version", "authority_url", "stability_levels", "release_rules", "field_visibility_rule",
        "surface_families", "release_check",
    ],
    "platform_protocol_specs": [
        "schema", "version", "authority_url", "formats", "owner_repos", "status_levels", "evolution_rules",
        "specs", "release_check",
    ],
    "platform_conformance_suite": [
        "schema", "version", "authority_doc", "surface_stability_authority", "result_schema", "result_version",
        "conformance_levels", "targets", "fixture_catalog", "pass_fail_rules", "harness_contract",
        "release_gates",
    ],
    "capabilities": [
        "workflow_tasks", "activity_tasks", "signals", "queries", "updates", "schedules", "history_export",
        "payload_codec_envelope", "payload_codec_envelope_responses", "bridge_adapter_outcome_contract",
        "replay_verification_contract", "external_executor_config_contract", "invocable_carrier_contract",
        "payload_codecs", "response_compression",
    ],
}  # fmt: skip


async def test_discovery_has_every_manifest_that_the_envelope_requires(tenant: Tenant) -> None:
    info = (await tenant.get("/api/cluster/info")).expect(200).json
    assert info.keys() >= REQUIRED
    for name, members in MEMBERS.items():
        assert set(members) <= info[name].keys(), name


async def test_the_fleet_lists_its_workers_until_they_are_silent_for_too_long(tenant: Tenant) -> None:
    await tenant.register(build_id="b1")
    (worker,) = (await tenant.get("/api/cluster/info")).json["worker_fleet"]["workers"]
    assert (worker["worker_id"], worker["queues"], worker["build_ids"]) == ("w-1", ["orders"], ["b1"])
    assert worker["recorded_at"] < worker["expires_at"]


async def test_discovery_does_not_advertise_what_switches_on_checks_that_we_do_not_serve(
    tenant: Tenant,
) -> None:
    info = (await tenant.get("/api/cluster/info")).json
    assert info["worker_protocol"]["server_capabilities"]["cooperative_cancellation"] is True
    for name in (
        "nexus_cooperative_cancellation",
        "prepared_local_activity_groups",
        "prepared_local_activities",
        "activity_lease_renewal",
        "query_task_authority",
        "sticky_execution",
        "worker_sessions",
        "observability_context",
    ):
        assert name not in info["worker_protocol"]["server_capabilities"]


@pytest.mark.parametrize("path", ["/api/service-endpoints", "/api/worker/sessions"])
async def test_a_surface_that_is_not_here_answers_that_there_is_no_such_route(
    tenant: Tenant, path: str
) -> None:
    (await tenant.post(path, {})).expect(404, "not_found")
