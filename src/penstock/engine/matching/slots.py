"""The slots of workers where tasks are given: who is full gets nothing, and looks again when a lease of it ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.core.model import TaskKind, WorkerRecord
from penstock.core.scheduling.slots import SlotUsage, free_slots
from penstock.ports.store import Tx

LOOK_AGAIN_MS = 50
"""How soon a full worker is looked at again that has a lease which is reported on right now."""


async def held(tx: Tx, workers: Sequence[WorkerRecord], kind: TaskKind) -> Mapping[str, SlotUsage]:
    """What each worker holds, of what it was given since its process registered."""
    if not workers:
        return {}
    sessions = [(worker.worker_id, worker.session_at_ms) for worker in workers]
    found = await tx.tasks.held(workers[0].namespace, kind, sessions)
    return {worker.worker_id: each for worker, each in zip(workers, found, strict=True)}


async def free(tx: Tx, workers: Iterable[WorkerRecord], kind: TaskKind, *, ahead: bool) -> dict[str, int]:
    """How many tasks each worker may be given. To be asked under the lock of their queue."""
    known = list({worker.worker_id: worker for worker in workers}.values())
    found = await held(tx, known, kind)
    return {
        worker.worker_id: free_slots(worker, kind, found[worker.worker_id], ahead=ahead) for worker in known
    }


async def heed(
    tx: Tx, full: Sequence[WorkerRecord], kind: TaskKind, *, ahead: bool
) -> Mapping[str, int | None]:
    """Have the ends of full workers' leases told; says of each when to look again, None: when that is told.

    At once, if a lease has ended meanwhile; soon, if one is reported on in this moment.
    """
    if not full:
        return {}
    await tx.tasks.notify_at_ends(full[0].namespace, kind, [worker.worker_id for worker in full])
    found = await held(tx, full, kind)
    return {
        worker.worker_id: _again_in_ms(worker, kind, found[worker.worker_id], ahead=ahead) for worker in full
    }


def _again_in_ms(worker: WorkerRecord, kind: TaskKind, now: SlotUsage, *, ahead: bool) -> int | None:
    if free_slots(worker, kind, now, ahead=ahead):
        return 0
    return LOOK_AGAIN_MS if now.untold else None
