"""Repairing a run that does not go on, and putting aside one that is closed."""

from __future__ import annotations

from penstock.core.model import Run, RunId
from penstock.engine import archiving, repairing
from penstock.engine.addressing import Address
from penstock.server.operation import Answer, Body, Call, text_path
from penstock.wire.system import RepairRun


async def repair(call: Call) -> Answer:
    request: RepairRun = call.body
    named = _named(call)
    workflow_id = text_path(call, "workflow_id", 128)
    address = Address(call.namespace, workflow_id, None if named is None else RunId(named))
    done = await repairing.repair(call.house, address)
    return Answer(_receipt(done.run, "repair", done.outcome, named, request.request_id))


async def archive(call: Call) -> Answer:
    named = _named(call)
    workflow_id = text_path(call, "workflow_id", 128)
    done = await archiving.archive(call.house, call.namespace, workflow_id, named)
    return Answer(_receipt(done.run, "archive", done.outcome, named, call.body.request_id))


def _named(call: Call) -> str | None:
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
