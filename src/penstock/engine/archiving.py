"""Archiving: an operator puts a closed run aside, and where there is an archive its history is written there."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Run
from penstock.engine import exporting
from penstock.engine.addressing import no_run
from penstock.engine.house import House
from penstock.engine.locating import locate
from penstock.errors import Conflict, Reason, Unavailable
from penstock.ports.store import Tx


class ArchiveOutcome(StrEnum):
    ARCHIVED = "archived"
    NOT_NEEDED = "archive_not_needed"


class Archived(Struct, frozen=True):
    run: Run
    outcome: ArchiveOutcome


async def archive(house: House, namespace: str, workflow_id: str, run_id: str | None = None) -> Archived:
    """Put a closed run aside. Its history stays as it is: the event that closed it remains the last one."""
    run = await _find(house, namespace, workflow_id, run_id)
    if run.is_open:
        raise Conflict(
            Reason.RUN_NOT_CLOSED,
            f"The run is {run.status.value}: only a closed run is archived.",
            workflow_id=workflow_id,
            run_id=run.run_id,
            status=run.status.value,
            outcome="rejected_run_not_closed",
            command_status="rejected",
            rejection_reason=Reason.RUN_NOT_CLOSED.value,
        )
    await keep(house, run)

    async def operation(tx: Tx) -> Archived:
        found = await tx.runs.lock(run.run_id)
        if found is None:
            raise no_run(workflow_id, run.run_id)
        if found.archived_at_ms is not None:
            return Archived(found, ArchiveOutcome.NOT_NEEDED)
        put_aside = replace(found, archived_at_ms=tx.now_ms)
        tx.runs.save(put_aside)
        return Archived(put_aside, ArchiveOutcome.ARCHIVED)

    return await house.store.transact(operation, key=run.run_id)


async def keep(house: House, run: Run) -> None:
    """Have the archive hold a closed run, if there is an archive. Raises `Unavailable` when it cannot."""
    if house.archive is None or await house.archive.holds(run):
        return
    bundle = await exporting.of_run(house, run)
    try:
        await house.archive.put(bundle, exporting.pages(house, run))
    except Unavailable as error:
        house.upkeep.could_not_archive(error.message)
        raise
    house.upkeep.archived()


async def _find(house: House, namespace: str, workflow_id: str, run_id: str | None) -> Run:
    async def operation(tx: Tx) -> Run:
        return (await locate(tx, namespace, workflow_id, run_id)).run

    return await house.store.read(operation, long=True)
