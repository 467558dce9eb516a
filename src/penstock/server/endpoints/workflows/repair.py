"""Repair of a stuck run, redrive of a failed one, and archiving of a closed one."""

from __future__ import annotations

from penstock.core.model import Run, RunId
from penstock.engine.operations import archival
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_repair
from penstock.engine.workflows.copies.redrive import OUTCOME, redrive_run
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire.operations.system import RepairRun


async def repair(call: OperationCall) -> Response:
    request: RepairRun = call.body
    named = _named(call)
    workflow_id = text_path(call, "workflow_id", 128)
    address = Address(call.namespace, workflow_id, None if named is None else RunId(named))
    done = await run_repair.repair(call.ctx, address)
    return Response(_receipt(done.run, "repair", done.outcome, named, request.request_id))


async def redrive(call: OperationCall) -> Response:
    request: RepairRun = call.body
    named = _named(call)
    workflow_id = text_path(call, "workflow_id", 128)
    run_id = None if named is None else RunId(named)
    done = await redrive_run(call.ctx, call.namespace, workflow_id, run_id, request.request_id)
    receipt = _receipt(done.run, "redrive", OUTCOME, named, request.request_id)
    return Response(
        receipt | {"redriven_run_id": done.failed_run_id, "reused_event_count": done.reused_events}
    )


async def archive(call: OperationCall) -> Response:
    named = _named(call)
    workflow_id = text_path(call, "workflow_id", 128)
    done = await archival.archive(call.ctx, call.namespace, workflow_id, named, call.body.reason)
    return Response(_receipt(done.run, "archive", done.outcome, named, call.body.request_id))


def _named(call: OperationCall) -> str | None:
    return text_path(call, "run_id") if "run_id" in call.path else None


def _receipt(run: Run, command: str, outcome: str, named: str | None, request_id: str | None) -> Body:
    return {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "outcome": str(outcome),
        "status": run.status.value,
        "command_status": "accepted",
        "command_id": f"{run.run_id}-{command}",
        "command_source": "control_plane",
        "target_scope": "instance" if named is None else "run",
        "request_id": request_id,
        "reason": None,
        "rejection_reason": None,
        "validation_errors": [],
    }
