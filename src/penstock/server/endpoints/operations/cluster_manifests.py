"""The manifests of the public contract in `cluster/info`: what this server is, which surfaces it serves, how it is.

Each has the schema name of the contract and the members that its envelope requires. They state what this server does;
where the contract describes a programme of its own project, such as its conformance levels, the member says that
nothing is claimed.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.ports.coordination import Coordination
from penstock.ports.store import StoreHealth
from penstock.server.versions import CONTROL_VERSION, WORKER_VERSION
from penstock.settings import Settings

Body = dict[str, Any]

_AUTHORITY: Final = "https://durable-workflow.github.io/"
_ADDITIVE: Final = "fields are added, never renamed or removed, within a major version"

SURFACE_STABILITY: Final[Body] = {
    "schema": "durable-workflow.v2.surface-stability.contract",
    "version": 1,
    "authority_url": _AUTHORITY,
    "stability_levels": ["stable", "experimental"],
    "release_rules": {"stable": _ADDITIVE, "experimental": "may change in any release"},
    "field_visibility_rule": "every documented field is stable; unknown fields are to be ignored",
    "surface_families": {
        "control_plane": {"stability": "stable", "version": CONTROL_VERSION},
        "worker_protocol": {"stability": "stable", "version": WORKER_VERSION},
        "history_events": {"stability": "stable", "version": 1},
        "history_export": {"stability": "stable", "version": 1},
    },
    "release_check": {"openapi": "/api/openapi.json", "unknown_fields": "named in `warnings`"},
}

PROTOCOL_SPECS: Final[Body] = {
    "schema": "durable-workflow.v2.platform-protocol-specs.catalog",
    "version": 1,
    "authority_url": _AUTHORITY,
    "formats": ["openapi", "json_schema"],
    "owner_repos": [],
    "status_levels": ["served", "absent"],
    "evolution_rules": {"served": _ADDITIVE},
    "specs": {
        "control_plane_api": {"status": "served", "format": "openapi", "path": "/api/openapi.json"},
        "worker_protocol_api": {"status": "served", "format": "openapi", "path": "/api/openapi.json"},
        "cluster_info_envelope": {"status": "served", "format": "json_schema"},
        "history_event_payloads": {"status": "served", "format": "json_schema"},
        "history_export_bundle": {"status": "served", "format": "json_schema"},
        "worker_sessions_runtime": {"status": "absent"},
        "mcp_discovery": {"status": "absent"},
        "waterline_read_api": {"status": "absent"},
    },
    "release_check": {"openapi": "/api/openapi.json"},
}

CONFORMANCE_SUITE: Final[Body] = {
    "schema": "durable-workflow.v2.platform-conformance.suite",
    "version": 1,
    "authority_doc": _AUTHORITY,
    "surface_stability_authority": SURFACE_STABILITY["schema"],
    "result_schema": "durable-workflow.v2.platform-conformance.result",
    "result_version": 1,
    "conformance_levels": [],
    "claimed_level": None,
    "targets": ["server"],
    "fixture_catalog": [],
    "pass_fail_rules": {},
    "harness_contract": {},
    "release_gates": [],
}

SDK_NEUTRALITY: Final[Body] = {
    "schema": "durable-workflow.v2.sdk-neutrality.contract",
    "version": 1,
    "runtimes": "any name",
    "payload_codecs": ["avro"],
    "privileged_runtimes": [],
}

REPLAY_VERIFICATION: Final[Body] = {
    "schema": "durable-workflow.v2.replay-verification.contract",
    "version": 1,
    "bundle_schema": "durable-workflow.v2.history-export",
    "bundle_schema_version": 1,
    "export": "/api/workflows/{workflow_id}/runs/{run_id}/history/export",
    "integrity": {"canonicalization": "json-recursive-ksort-v1", "checksum_algorithm": "sha256"},
    "server_side_verification": False,
}


def topology(settings: Settings) -> Body:
    """Every server does everything, on one database; several of them need no leader."""
    postgres = settings.store.kind.value == "postgres"
    shape = "replicated_servers" if postgres else "single_server"
    return {
        "schema": "durable-workflow.v2.topology",
        "version": 1,
        "supported_shapes": ["single_server", "replicated_servers"],
        "current_shape": shape,
        "current_process_class": "server",
        "current_roles": ["control_plane", "matching", "history", "scheduler", "maintenance"],
        "execution_mode": "remote_workers",
        "matching_role": {
            "shape": "in_process",
            "task_dispatch_mode": "poll",
            "queue_wake_enabled": True,
            "wake_owner": "every_server",
            "partition_primitives": ["namespace", "task_queue", "fairness_key"],
            "backpressure_model": "leases_and_rates",
        },
    }


def coordination_health(namespace: str, store: StoreHealth, coordination: Coordination, now: str) -> Body:
    """Whether this server commits, and whether the locks between servers work."""
    checks = [
        _check(
            "storage",
            failed=store.refusal is not None,
            severity="error",
            problem="The database refuses writes.",
        ),
        _check(
            "coordination",
            failed=not coordination.is_supported,
            severity="warning",
            problem="The locks between servers are not available.",
        ),
    ]
    errors = [each["name"] for each in checks if each["status"] == "error"]
    warnings = [each["name"] for each in checks if each["status"] == "warning"]
    return {
        "schema": "durable-workflow.v2.coordination-health",
        "version": 1,
        "namespace_scope": namespace,
        "status": "error" if errors else "warning" if warnings else "ok",
        "http_status": 503 if errors else 200,
        "generated_at": now,
        "categories": {"backend": {"checks": [each["name"] for each in checks]}},
        "warning_checks": warnings,
        "error_checks": errors,
        "checks": checks,
    }


def _check(name: str, *, failed: bool, severity: str, problem: str) -> Body:
    return {
        "name": name,
        "status": severity if failed else "ok",
        "category": "backend",
        "message": problem if failed else None,
    }
