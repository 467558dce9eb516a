"""The body of a worker registration."""

from __future__ import annotations

from typing import Any

from penstock import __version__
from penstock.dispatch import DispatchConfig
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.worker.registry import WorkerRegistry
from penstock.sdk.worker.worker_api import WorkerApi

Json = dict[str, Any]
CAPABILITIES = [
    "concurrent_steps",
    "query_tasks",
    "update_validation_tasks",
    "memo_upserts",
    "typed_search_attributes",
    "local_activities",
]


def registration_body(
    api: WorkerApi, registry: WorkerRegistry, options: WorkerOptions, *, activity_slots: int, has_codecs: bool
) -> Json:
    """Return the body of a registration. It offers at least one slot of each kind; a heartbeat then reports zero.

    Parameters of handlers are left out if the client has payload codecs, because the server cannot check encoded
    values.
    """
    body: Json = {
        "worker_id": api.worker_id,
        "task_queue": api.task_queue,
        "runtime": "python",
        "sdk_version": f"penstock-python/{__version__}",
        "supported_workflow_types": registry.workflow_types,
        "supported_activity_types": registry.activity_types,
        "workflow_definition_fingerprints": registry.fingerprints,
        "max_concurrent_workflow_tasks": max(1, options.max_concurrent_workflow_tasks),
        "max_concurrent_activity_tasks": max(1, activity_slots),
        "capabilities": CAPABILITIES,
        "workflow_command_contracts": registry.command_contracts(with_parameters=not has_codecs),
    }
    if options.claiming.prefetch:
        body["max_claimed_activity_tasks"] = options.claiming.prefetch
    if options.max_activities_per_second is not None:
        body["max_activities_per_second"] = options.max_activities_per_second
    return body | ({} if api.build_id is None else {"build_id": api.build_id})


def reported_rates(options: WorkerOptions, config: DispatchConfig | None, task_queue: str) -> Json:
    """Return the queue-wide rate that this worker requests, from its options or the dispatch configuration."""
    rate, burst_s = options.max_task_queue_activities_per_second, options.queue_rate_burst_seconds
    if config is not None:
        rate = config.queue_cap(task_queue) if rate is None else rate
        burst_s = config.queue_rate_burst_seconds if burst_s is None else burst_s
    if rate is None:
        return {}
    body = {"max_task_queue_activities_per_second": rate}
    return body if burst_s is None else body | {"queue_rate_burst_seconds": burst_s}
