"""Health, readiness and the capabilities of the server."""

from __future__ import annotations

from typing import Any

from penstock import __version__
from penstock.core.history.structural_limits import WARN_FROM_PERCENT
from penstock.core.id_policies import IdConflictPolicy, IdReusePolicy
from penstock.core.timestamps import iso
from penstock.core.visibility.fields import LISTED_STATUSES
from penstock.engine.operations import namespaces
from penstock.engine.payloads.policy import can_open, policy_of
from penstock.engine.schedules import zone_upgrades, zones
from penstock.engine.workers import worker_registry
from penstock.errors import PenstockError, Reason
from penstock.ports.coordination import Coordination
from penstock.ports.store import StoreHealth, Tx
from penstock.server.endpoints.operations import cluster_manifests
from penstock.server.endpoints.operations.system import repair_status
from penstock.server.endpoints.payloads.transfers import discovery
from penstock.server.endpoints.workflows.start_requests import UNSUPPORTED_START_FIELDS
from penstock.server.envelopes import CONTRACT, CONTROL_OPERATIONS, SERVER_CAPABILITIES
from penstock.server.operation import OperationCall, Response
from penstock.server.versions import CONTROL_VERSION, HEADERS, WORKER_VERSION
from penstock.settings import Settings
from penstock.wire.bridges.outcomes import MANIFEST as BRIDGE_MANIFEST

STALLED_AFTER_MS = 3_000
"""A commit that takes longer counts as stalled: no transaction holds its locks for that long."""
WORKERS_SHOWN = 100
REPAIRS_SHOWN = 25
OPTIONAL = frozenset({"cache", "zone_data"})
"""Checks that do not affect readiness: most operations do not need what they check."""


async def health(call: OperationCall) -> Response:
    """Whether this server reaches its store; liveness probes may restart it otherwise."""
    try:
        await call.ctx.store.check()
        now_ms = await call.ctx.store.read(_now)
    except PenstockError as error:
        body = {"status": "degraded", "checks": {"database": "unavailable"}, "reason": error.reason.value}
        return Response(body, 503)
    checks = {"database": "ok"} | ({} if call.ctx.coordination.is_supported else {"cache": "unavailable"})
    refusal = call.ctx.store.health().refusal
    if refusal is not None:
        checks["storage"] = _storage(refusal)
    return Response({"status": "serving", "timestamp": iso(now_ms), "checks": checks})


async def ready(call: OperationCall) -> Response:
    """Whether this server should receive traffic: its reads and commits complete."""
    checks: dict[str, dict[str, Any]] = {}
    now_ms = 0
    try:
        await call.ctx.store.check()
        now_ms = await call.ctx.store.read(_now)
        checks["database"] = {"status": "ok"}
        checks["migrations"] = {"status": "ok"}
        default = await namespaces.find(call.ctx, call.ctx.settings.default_namespace)
        checks["default_namespace"] = {"status": "ok" if default else "missing"}
        checks["zone_data"] = _zone_data(await zone_upgrades.newest(call.ctx))
    except PenstockError as error:
        checks["database"] = {"status": "unavailable", "reason": error.reason.value}
    settings = call.ctx.settings
    empty = settings.auth.secrets.is_empty and settings.auth.driver.value != "none"
    checks |= _writes(call.ctx.store.health())
    checks["auth"] = {"status": "unconfigured" if empty else "ok", "driver": settings.auth.driver.value}
    checks["cache"] = _cache(call.ctx.coordination)
    checks["serving"] = {"status": "draining" if call.dispatcher.is_draining else "ok"}
    fine = all(check["status"] == "ok" for name, check in checks.items() if name not in OPTIONAL)
    body = {"status": "ready" if fine else "not_ready", "timestamp": iso(now_ms), "checks": checks}
    return Response(body, 200 if fine else 503)


def _zone_data(newest: str | None) -> dict[str, Any]:
    """Whether this server's zone data are older than those in use: it leaves schedules in time zones to others."""
    if newest is None:
        return {"status": "ok", "version": zones.VERSION}
    reason = Reason.ZONE_DATA_OUTDATED.value
    return {"status": "outdated", "version": zones.VERSION, "newest_version": newest, "reason": reason}


def _writes(condition: StoreHealth) -> dict[str, dict[str, Any]]:
    """Whether commits complete, and whether the storage accepts them."""
    stalled = condition.stalled_ms > STALLED_AFTER_MS
    commits: dict[str, Any] = {"status": "stalled" if stalled else "ok"}
    if stalled:
        commits["oldest_seconds"] = condition.stalled_ms // 1000
    storage: dict[str, Any] = {"status": "ok"}
    if condition.refusal is not None:
        storage = {"status": _storage(condition.refusal), "reason": condition.refusal.value}
    return {"commits": commits, "storage": storage}


def _storage(refusal: Reason) -> str:
    return "full" if refusal is Reason.STORAGE_FULL else "failing"


def _cache(coordination: Coordination) -> dict[str, Any]:
    """The backend of the locks between servers, which the contract calls the cache."""
    if coordination.is_supported:
        return {"status": "ok", "driver": coordination.kind}
    reason = Reason.COORDINATION_UNAVAILABLE.value
    return {"status": "unavailable", "driver": coordination.kind, "reason": reason}


async def _now(tx: Tx) -> int:
    return tx.now_ms


async def cluster_info(call: OperationCall) -> Response:
    settings = call.ctx.settings
    fleet = await worker_registry.list_workers(call.ctx, call.namespace, None)
    stale_after_ms = settings.polls.worker_stale_after_ms
    alive = [each for each in fleet.workers if fleet.now_ms - each.heartbeat_at_ms <= stale_after_ms]
    namespace = await namespaces.find(call.ctx, call.namespace)
    policy = policy_of(namespace)
    storage = discovery(policy, settings, works=policy is not None and can_open(call.ctx, policy))
    body: dict[str, Any] = {
        "server_id": settings.server_id,
        "version": __version__,
        "product": "penstock",
        "default_namespace": settings.default_namespace,
        "namespace": {"name": call.namespace}
        | ({} if storage is None else {"external_payload_storage": storage}),
        "supported_sdk_versions": {"php": ">=0.1", "python": ">=0.2", "cli": ">=0.1"},
        "capabilities": _CAPABILITIES,
        "worker_fleet": {
            "namespace": call.namespace,
            "active_workers": len(alive),
            "active_worker_scopes": len({(each.task_queue, each.build_id) for each in alive}),
            "queues": sorted({each.task_queue for each in alive}),
            "build_ids": sorted({each.build_id for each in alive if each.build_id}),
            "workers": [
                {
                    "worker_id": each.worker_id,
                    "queues": [each.task_queue],
                    "build_ids": [each.build_id] if each.build_id else [],
                    "recorded_at": iso(each.heartbeat_at_ms),
                    "expires_at": iso(each.heartbeat_at_ms + stale_after_ms),
                }
                for each in alive[:WORKERS_SHOWN]
            ],
        },
        "task_repair": await repair_status(call, REPAIRS_SHOWN),
        "limits": _limits(settings),
        "structural_limits": {
            "pending_activity_count": settings.limits.pending_activities_max,
            "pending_child_count": settings.limits.pending_children_max,
            "pending_timer_count": settings.limits.pending_timers_max,
            "pending_signal_count": settings.limits.pending_signals_max,
            "pending_update_count": settings.limits.pending_updates_max,
            "command_batch_size": 1000,
            "payload_size_bytes": settings.limits.payload_bytes_max,
            "memo_size_bytes": settings.limits.memo_bytes_max,
            "history_event_count": settings.limits.history_events_max,
            "warning_threshold_percent": WARN_FROM_PERCENT,
        },
        "client_compatibility": _COMPATIBILITY,
        "control_plane": _CONTROL_PLANE,
        "worker_protocol": {
            "version": WORKER_VERSION,
            "header": next(iter(v for k, v in HEADERS.items() if k.value == "worker")),
            "accepted_versions": "1.0 to 1.20",
            "server_capabilities": SERVER_CAPABILITIES,
        },
        "auth_composition_contract": _AUTH_COMPOSITION,
        "bridge_adapter_outcome_contract": BRIDGE_MANIFEST,
        "topology": cluster_manifests.topology(settings),
        "coordination_health": cluster_manifests.coordination_health(
            call.namespace, call.ctx.store.health(), call.ctx.coordination, iso(fleet.now_ms)
        ),
        "surface_stability_contract": cluster_manifests.SURFACE_STABILITY,
        "platform_protocol_specs": cluster_manifests.PROTOCOL_SPECS,
        "platform_conformance_suite": cluster_manifests.CONFORMANCE_SUITE,
        "sdk_neutrality_contract": cluster_manifests.SDK_NEUTRALITY,
        "replay_verification_contract": cluster_manifests.REPLAY_VERIFICATION,
    }
    return Response(body)


def _limits(settings: Settings) -> dict[str, int]:
    limits = settings.limits
    return {
        "max_payload_bytes": limits.payload_bytes_max,
        "max_memo_bytes": limits.memo_bytes_max,
        "max_search_attributes": limits.search_attributes_max,
        "max_search_attribute_key_length": limits.search_attribute_key_length_max,
        "max_search_attribute_value_bytes": limits.search_attribute_value_bytes_max,
        "max_operation_name_length": limits.operation_name_bytes_max,
        "max_pending_activities": limits.pending_activities_max,
        "max_pending_children": limits.pending_children_max,
        "max_pending_timers": limits.pending_timers_max,
    }


_CAPABILITIES: dict[str, Any] = {
    "workflow_tasks": True,
    "activity_tasks": True,
    "standalone_activities": True,
    "activity_timeouts": True,
    "activity_retry_policy": True,
    "non_retryable_failures": True,
    "payload_codec_envelope": True,
    "payload_codec_envelope_responses": True,
    "priority": True,
    "fairness": True,
    "task_queue_config": True,
    "signals": True,
    "queries": True,
    "updates": True,
    "schedules": True,
    "bridge_adapter_outcome_contract": True,
    "replay_verification_contract": True,
    "external_executor_config_contract": False,
    "invocable_carrier_contract": False,
    "schedule_jitter": True,
    "schedule_max_runs": True,
    "principal_attribution": True,
    "search_attributes": True,
    "history_export": True,
    "continue_as_new": True,
    "child_workflows": True,
    "child_workflow_retry_policy": True,
    "child_workflow_timeouts": True,
    "parent_close_policy": True,
    "message_streams": True,
    "workflow_streams": True,
    "history_retention": True,
    "payload_codecs": ["avro"],
    "response_compression": ["gzip", "deflate"],
}

_COMPATIBILITY: dict[str, Any] = {
    "schema": "durable-workflow.v2.client-compatibility",
    "version": 1,
    "authority": "protocol_manifests",
    "top_level_version_role": "informational",
    "fail_closed": True,
    "required_protocols": {"control_plane": CONTROL_VERSION, "worker_protocol": WORKER_VERSION},
    "clients": {
        "cli": {"supported_versions": ">=0.1", "requires": ["control_plane"]},
        "sdk-python": {"supported_versions": ">=0.2", "requires": ["control_plane", "worker_protocol"]},
    },
}

_CONTROL_PLANE: dict[str, Any] = {
    "version": CONTROL_VERSION,
    "header": next(iter(HEADERS.values())),
    "response_contract": {
        "schema": "durable-workflow.v2.control-plane-response",
        "version": 1,
        "contract": CONTRACT,
        "operations": CONTROL_OPERATIONS,
    },
    "request_contract": {
        "schema": "durable-workflow.v2.control-plane-request.contract",
        "version": 1,
        "operations": {
            "list": {
                "fields": {
                    "status": {
                        "canonical_values": list(LISTED_STATUSES),
                        "rejected_aliases": {"pending": "running", "waiting": "running"},
                    }
                }
            },
            "start": {
                "fields": {
                    "duplicate_policy": {
                        "canonical_values": ["fail", "use-existing"],
                        "rejected_aliases": {"use_existing": "use-existing"},
                    },
                    "id_reuse_policy": {"canonical_values": [each.value for each in IdReusePolicy]},
                    "id_conflict_policy": {"canonical_values": [each.value for each in IdConflictPolicy]},
                    "execution_timeout_seconds": {"type": "integer", "minimum": 1},
                    "run_timeout_seconds": {"type": "integer", "minimum": 1},
                },
                "unsupported_fields": list(UNSUPPORTED_START_FIELDS),
            },
            "update": {
                "fields": {"wait_for": {"canonical_values": ["accepted", "completed"]}},
                "removed_fields": {"wait_policy": "wait_for"},
            },
        },
    },
}

_AUTH_COMPOSITION: dict[str, Any] = {
    "schema": "durable-workflow.v2.auth-composition.contract",
    "version": 1,
    "precedence": {
        "connection_values": ["flag", "environment", "selected_profile", "default"],
        "profile_selection": ["flag_env", "DW_ENV", "current_profile", "default_profile"],
    },
    "canonical_environment": {
        "server_url": "DURABLE_WORKFLOW_SERVER_URL",
        "namespace": "DURABLE_WORKFLOW_NAMESPACE",
        "auth_token": "DURABLE_WORKFLOW_AUTH_TOKEN",
        "tls_verify": "DURABLE_WORKFLOW_TLS_VERIFY",
        "profile": "DW_ENV",
    },
    "auth_material": {
        "token": {"status": "supported", "effective_config_value": "redacted"},
        "mtls": {"status": "reserved"},
        "signed_headers": {"status": "reserved"},
    },
    "effective_config": {
        "required_fields": ["server_url", "namespace", "profile", "auth", "tls", "identity"]
    },
    "redaction": {"never_echo": ["bearer_tokens", "private_keys", "raw_authorization_headers"]},
}
