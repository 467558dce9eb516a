"""Signals: recorded in order of arrival, once per request id."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.attribution import Caller, caused_by
from penstock.core.history import structural_limits
from penstock.core.history.events import CODEC, EventType
from penstock.core.model import Blob, NewEvent, Run
from penstock.engine.context import EngineContext
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.history_writer import may_close_with_unhandled_signal, record_external_event
from penstock.engine.runs.idempotency import (
    IdempotentRequest,
    check_contract,
    contracts_of,
    retain,
    retained,
    retained_by_older_run,
)
from penstock.errors import Conflict, Reason, Unavailable
from penstock.ports.store import Tx

RETRY_AFTER_S = 1


class Signal(Struct, frozen=True):
    """A signal to a run."""

    address: Address
    name: str
    arguments: Blob
    request_id: str | None = None

    @property
    def request(self) -> IdempotentRequest:
        return IdempotentRequest("signal", self.name, self.arguments, self.request_id)


class SignalReceipt(Struct, frozen=True):
    """The receipt of a recorded signal."""

    run: Run
    receipt: dict[str, Any]
    retained: bool = False
    """Whether the signal was recorded before, under the same request id."""


async def send(ctx: EngineContext, signal: Signal) -> SignalReceipt:
    """Record a signal once per request id, and wake the code if it has to handle it."""

    async def act(tx: Tx, run: Run) -> SignalReceipt:
        bound_to = run if signal.address.is_bound else None
        before = await retained(tx, run.namespace, run.workflow_id, signal.request, bound_to)
        if before is not None:
            return SignalReceipt(run, before, retained=True)
        check_workflow(run)
        check_open(run)
        await check_accepts_signals(tx, run)
        check_contract(await contracts_of(ctx, tx, run), run, signal.request)
        structural_limits.check_signal(run, ctx.bounds)
        run = counted(run)
        run = await record_external_event(tx, run, [received(run, signal, ctx.caller)])
        tx.runs.save(run)
        receipt = receipt_of(run)
        retain(tx, run, signal.request, receipt)
        return SignalReceipt(run, receipt)

    try:
        return await on_run(ctx, signal.address, act)
    except Conflict as refusal:
        run, receipt = await retained_by_older_run(ctx, signal.address, signal.request, refusal)
        return SignalReceipt(run, receipt, retained=True)


async def check_accepts_signals(tx: Tx, run: Run) -> None:
    """Raise `Unavailable` if the run may close without handling a new signal, so that none is acknowledged and lost."""
    if await may_close_with_unhandled_signal(tx, run):
        raise Unavailable(
            Reason.RUN_IS_ENDING,
            "The workflow is about to end; its end was postponed for many signals already. Nothing was recorded. Try "
            "again in a moment: the signal is accepted if the workflow continues.",
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            outcome="none",
            retry_after_seconds=RETRY_AFTER_S,
        )


def counted(run: Run) -> Run:
    return replace(run, last_request=run.last_request + 1, unseen_signals=run.unseen_signals + 1)


def received(run: Run, signal: Signal, caller: Caller | None = None) -> NewEvent:
    """The event of a signal, which is the run's newest request."""
    return NewEvent(
        EventType.SIGNAL_RECEIVED,
        {
            "signal_name": signal.name,
            "arguments": signal.arguments,
            "payload_codec": CODEC,
            "signal_id": f"{run.run_id}-s{run.last_request}",
            "workflow_command_id": f"{run.run_id}-s{run.last_request}",
        }
        | caused_by(caller),
    )


def receipt_of(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "command_id": f"{run.run_id}-s{run.last_request}",
        "command_sequence": run.last_request,
        "outcome": "signal_received",
    }
