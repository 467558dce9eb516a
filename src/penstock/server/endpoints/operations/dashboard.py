"""The health of a namespace, and the summary that an operator's dashboard begins with."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import WorkerRecord
from penstock.core.operations.run_counts import FailingType
from penstock.core.timestamps import iso
from penstock.engine.operations import namespace_stats
from penstock.engine.operations.namespace_stats import NamespaceCounts
from penstock.server.endpoints.operations import system
from penstock.server.operation import Body, OperationCall, Response
from penstock.wire import responses

_OK, _WARNING, _ERROR = "ok", "warning", "error"
_OVERALL = {_OK: "healthy", _WARNING: "degraded", _ERROR: "unhealthy"}


async def health(call: OperationCall) -> Response:
    counts, failing = await _read(call)
    return Response(_health(call, counts, failing))


async def operator_dashboard(call: OperationCall) -> Response:
    counts, failing = await _read(call)
    found = _health(call, counts, failing)
    return Response(
        system.operator_metrics_body(call, counts)
        | {
            "generated_at": iso(counts.now_ms),
            "health": found,
            "needs_attention": [each for each in found["checks"] if each["status"] != _OK],
            "workflow_types": [
                {"workflow_type": each.workflow_type, "failing_runs": each.runs} for each in failing
            ],
        }
    )


async def _read(call: OperationCall) -> tuple[NamespaceCounts, Sequence[FailingType]]:
    counts = await namespace_stats.stats(call.ctx, call.namespace)
    health = await namespace_stats.health(call.ctx, call.namespace)
    return counts, health.failing


def _health(call: OperationCall, counts: NamespaceCounts, failing: Sequence[FailingType]) -> Body:
    stale_after_ms = call.ctx.settings.polls.worker_stale_after_ms
    active = responses.active_workers([*counts.workers], counts.now_ms, stale_after_ms)
    checks = _checks(counts, failing, active)
    worst = max((str(each["status"]) for each in checks), key=[*_OVERALL].index)
    return {
        "namespace": call.namespace,
        "generated_at": iso(counts.now_ms),
        "status": _OVERALL[worst],
        "checks": checks,
    }


def _checks(
    counts: NamespaceCounts, failing: Sequence[FailingType], active: Sequence[WorkerRecord]
) -> list[Body]:
    ready = counts.workflow_tasks.ready + counts.activity_tasks.ready
    expired = counts.workflow_tasks.expired + counts.activity_tasks.expired
    return [
        _check("store", 0, _ERROR, "The database answers."),
        _check("workers", 0 if active else ready, _ERROR, "tasks wait, and no worker is active"),
        _check("leases", expired, _WARNING, "leases have expired and were not taken back yet"),
        _check("runs", counts.stranded_runs, _WARNING, "open runs have no task; repair them"),
        _check("activities", counts.overdue_activities, _WARNING, "activities have exceeded a timeout"),
        _check(
            "workflow_tasks", sum(each.runs for each in failing), _WARNING, "runs fail their task repeatedly"
        ),
    ]


def _check(name: str, count: int, severity: str, problem: str) -> Body:
    return {
        "name": name,
        "status": severity if count else _OK,
        "count": count,
        "message": f"{count} {problem}." if count else None,
    }
