"""The report of a run that a schedule started to its schedule: it has closed.

It is an outbox message, because a transaction that closes a run must not lock its schedule: fires lock the schedule
first and then runs. Runs that no schedule started pay nothing: the fire is a field of their lineage.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from penstock.core.model import OutboxKind, OutboxMessage, Run, RunStatus
from penstock.core.schedules.record import FireKey
from penstock.engine.runs.history_writer import to_json
from penstock.ports.store import Tx
from penstock.ports.wakeups import OUTBOX_TOPIC


class FireClosed(Struct, frozen=True):
    """How the run that a fire started has closed."""

    fire: FireKey
    status: RunStatus
    closed_reason: str


_decode = msgspec.json.Decoder(FireClosed).decode


def report_closed(tx: Tx, run: Run) -> None:
    """Report the end of a run to the schedule that started it, if one did."""
    fire = run.lineage.fire
    if fire is None:
        return
    tx.outbox.insert(
        OutboxMessage(
            message_id=f"{run.run_id}-{OutboxKind.FIRE_CLOSED.value}",
            namespace=run.namespace,
            workflow_id=run.workflow_id,
            run_id=run.run_id,
            kind=OutboxKind.FIRE_CLOSED,
            payload=to_json(FireClosed(fire, run.status, run.closed_reason or run.status.value)),
            created_at_ms=tx.now_ms,
        )
    )
    tx.wake(OUTBOX_TOPIC)


def fire_closed_of(message: OutboxMessage) -> FireClosed:
    return _decode(message.payload)
