"""Carries out the command of a bridge event once per idempotency key, on any number of servers.

The key is a fact of the run that it acted on, and is committed with the effect: the start key of a run for starts, the
request id of a signal or an update for commands (invariant `one-effect-per-event`). There is no table of keys beside
the runs, so a key is neither recorded without its effect nor outlives it, and retention deletes it with its run.

A repetition has no second effect, whatever its input: other systems send an event again with fields that changed since,
such as a delivery counter. That differs from request ids of clients, where a changed input is an error.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.bridges.outcomes import command_key
from penstock.core.model import Blob
from penstock.engine.context import EngineContext
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.signals import Signal
from penstock.engine.messaging.updates import UpdateSubmission
from penstock.engine.runs.address import Address
from penstock.engine.workflows import starts
from penstock.engine.workflows.starts import Start, StartOutcome
from penstock.errors import Conflict, Reason

DEDUPED_COMMAND = "deduped_existing_command"


class BridgeEvent(Struct, frozen=True):
    """Which adapter an event came through, and what identifies it there."""

    adapter: str
    idempotency_key: str


class BridgeCommand(Struct, frozen=True):
    """A signal or an update of an event."""

    address: Address
    name: str
    arguments: Blob


class BridgeResult(Struct, frozen=True):
    """What an event did, or, if `is_duplicate`, what it had done before."""

    is_duplicate: bool
    workflow_id: str
    run_id: str
    workflow_type: str | None
    control_plane_outcome: str


async def start(ctx: EngineContext, event: BridgeEvent, request: Start) -> BridgeResult:
    """Start a workflow, unless the event has started it or, with `use_existing`, its id has an open run."""
    key = command_key(event.adapter, "start", event.idempotency_key)
    started = await starts.start_workflow(ctx, replace(request, start_key=key))
    is_new = started.outcome is StartOutcome.STARTED_NEW and not started.deduplicated
    run = started.run
    existing = "returned_existing_active" if run.is_open else "returned_existing_closed"
    outcome = StartOutcome.STARTED_NEW.value if is_new else existing
    return BridgeResult(not is_new, run.workflow_id, run.run_id, run.workflow_type, outcome)


async def signal(ctx: EngineContext, event: BridgeEvent, command: BridgeCommand) -> BridgeResult:
    """Send a signal."""
    key = command_key(event.adapter, command.name, event.idempotency_key)
    try:
        sent = await signals.send(ctx, Signal(command.address, command.name, command.arguments, key))
    except Conflict as refusal:
        return _repeated(command, refusal)
    outcome = DEDUPED_COMMAND if sent.retained else str(sent.receipt["outcome"])
    run = sent.run
    run_id = str(sent.receipt["run_id"])
    return BridgeResult(sent.retained, run.workflow_id, run_id, run.workflow_type, outcome)


async def update(
    ctx: EngineContext, event: BridgeEvent, command: BridgeCommand, draining: asyncio.Event
) -> BridgeResult:
    """Send an update, and wait until it is accepted, but not for its result.

    Args:
        ctx: The engine.
        event: The event that the update comes from.
        command: The update.
        draining: Ends the wait for a validator when the server stops.
    """
    key = command_key(event.adapter, command.name, event.idempotency_key)
    submission = UpdateSubmission(command.address, command.name, command.arguments, key)
    try:
        accepted = await updates.accept(ctx, submission, draining)
    except Conflict as refusal:
        return _repeated(command, refusal)
    outcome = DEDUPED_COMMAND if accepted.retained else "update_accepted"
    run = accepted.run
    return BridgeResult(
        accepted.retained, run.workflow_id, accepted.update.run_id, run.workflow_type, outcome
    )


def _repeated(command: BridgeCommand, refusal: Conflict) -> BridgeResult:
    """The result of an event that was sent before with another input. Raises `refusal` if it has another reason."""
    if refusal.reason is not Reason.REQUEST_ID_CONFLICT:
        raise refusal
    run_id = str(refusal.details["retained_run_id"])
    return BridgeResult(True, command.address.workflow_id, run_id, None, DEDUPED_COMMAND)
