"""What operators did to a run, retained for its audit trail beside the requests of clients.

They change no history: a closed run's last event remains its close, and a worker that replays an open run sees nothing
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core import json_text
from penstock.core.attribution import caused_by
from penstock.core.audit.trail import OperatorCommand
from penstock.core.model import RetainedRequest, Run
from penstock.engine.context import EngineContext
from penstock.ports.store import Tx

REPAIR = "repair"
ARCHIVE = "archive"
RERUN = "rerun"
RESET = "reset"
FORK = "fork"
PAUSE = "pause"
RESUME = "resume"
PAUSE_ACTIVITY = "pause_activity"
RESUME_ACTIVITY = "resume_activity"
RESET_ACTIVITY = "reset_activity"
UPDATE_ACTIVITY = "update_activity"
RUN_ACTIVITY = "run_activity"


def retain(
    ctx: EngineContext,
    tx: Tx,
    run: Run,
    kind: str,
    outcome: str,
    reason: str | None = None,
    target: str | None = None,
) -> None:
    """Record a command that took effect, under an id of its own. `target` is the activity that it concerns."""
    receipt = {"after": run.last_sequence, "outcome": str(outcome), "reason": reason} | caused_by(ctx.caller)
    if target is not None:
        receipt["target"] = target
    tx.requests.insert(
        RetainedRequest(
            namespace=run.namespace,
            workflow_id=run.workflow_id,
            kind=kind,
            request_id=ctx.entropy.new_id(),
            run_id=run.run_id,
            number=run.last_request,
            name="",
            digest="",
            receipt=json_text.written(receipt),
            at_ms=tx.now_ms,
        )
    )


async def commands_of(tx: Tx, run: Run) -> Sequence[OperatorCommand]:
    """The retained commands of a run, the oldest first."""
    return [_command(run, each) for each in await tx.requests.operator_requests(run.run_id)]


def _command(run: Run, retained: RetainedRequest) -> OperatorCommand:
    receipt: dict[str, Any] = json_text.read(retained.receipt)
    return OperatorCommand(
        kind=retained.kind,
        command_id=f"{run.run_id}-{retained.kind}-{retained.request_id}",
        at_ms=retained.at_ms,
        after=receipt["after"],
        reason=receipt.get("reason"),
        outcome=receipt.get("outcome"),
        principal=receipt.get("principal"),
        target=receipt.get("target"),
    )
