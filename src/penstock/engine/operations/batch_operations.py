"""One thing done to many open runs: those that a query finds, newest first, so many at a time."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Blob, Run
from penstock.core.visibility.filters import OPEN
from penstock.engine.context import EngineContext
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.visibility import run_search
from penstock.engine.visibility.run_search import RunCount, RunFilter
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import CANCEL_REQUESTED_OUTCOME, EndMode
from penstock.errors import PenstockError, Reason, Unavailable
from penstock.ports.store import PageStart

AT_ONCE = 50
"""So many runs are acted on together, so that they share commits and others are not kept waiting."""
SAMPLE = 10
FAILURES_REPORTED = 20
_GONE = (
    Reason.RUN_NOT_ACTIVE,
    Reason.HISTORICAL_RUN_COMMAND_REJECTED,
    Reason.INSTANCE_NOT_FOUND,
    Reason.RUN_NOT_FOUND,
)
"""Refusals that say: there is nothing left to do for this run."""


class BatchAction(StrEnum):
    CANCEL = "cancel"
    TERMINATE = "terminate"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What to do to the open runs that are wanted. A signal reaches each run once for each request id."""

    act: BatchAction
    wanted: RunFilter
    request_id: str
    reason: str | None = None
    signal_name: str = ""
    arguments: Blob = field(default=Blob(""))

    @property
    def open_only(self) -> RunFilter:
        return replace(self.wanted, only=OPEN)


class BatchFailure(Struct, frozen=True):
    run: Run
    error: PenstockError


class BatchOutcome(Struct, frozen=True):
    """What became of the runs of one call, and where the next one goes on."""

    matched: int
    acted: int
    skipped: int
    failures: Sequence[BatchFailure]
    after: PageStart | None
    asked: int = 0
    """Those of the runs acted on whose code was asked to end them; they are open yet."""


class Preview(Struct, frozen=True):
    count: RunCount
    sample: Sequence[Run]


async def preview(ctx: EngineContext, batch: BatchJob) -> Preview:
    """How many runs would be acted on, and the newest of them. Nothing is done."""
    counted = await run_search.count(ctx, batch.open_only)
    sample = await run_search.page(ctx, batch.open_only, None, SAMPLE)
    return Preview(counted, sample.runs)


async def run_batch(ctx: EngineContext, batch: BatchJob, after: PageStart | None, most: int) -> BatchOutcome:
    """Act on the next runs, each in a transaction of its own. Sent again, it finds only what is left to do."""
    found = await run_search.page(ctx, batch.open_only, after, most)
    acted = asked = 0
    failures: list[BatchFailure] = []
    for first in range(0, len(found.runs), AT_ONCE):
        runs = found.runs[first : first + AT_ONCE]
        for run, came in zip(
            runs, await asyncio.gather(*(_one(ctx, batch, run) for run in runs)), strict=True
        ):
            if not isinstance(came, PenstockError):
                acted += 1
                asked += came == CANCEL_REQUESTED_OUTCOME
            elif came.reason not in _GONE:
                failures.append(BatchFailure(run, came))
    skipped = len(found.runs) - acted - len(failures)
    return BatchOutcome(len(found.runs), acted, skipped, failures, found.after, asked)


async def _one(ctx: EngineContext, batch: BatchJob, run: Run) -> str | PenstockError:
    """Act on one run: what came of it; a refusal is its own. A store that cannot be reached ends the call."""
    try:
        if batch.act is BatchAction.SIGNAL:
            return str((await signals.send(ctx, _signal(batch, run))).receipt["outcome"])
        end = EndMode(batch.act.value)
        ended = await run_close.end_run(ctx, run.namespace, run.workflow_id, end, batch.reason, run.run_id)
        return ended.outcome
    except PenstockError as error:
        if isinstance(error, Unavailable) and error.reason is not Reason.RUN_IS_ENDING:
            raise
        return error


def _signal(batch: BatchJob, run: Run) -> Signal:
    address = Address(run.namespace, run.workflow_id, run.run_id)
    return Signal(address, batch.signal_name, batch.arguments, _request_id(batch.request_id, run))


def _request_id(request_id: str, run: Run) -> str:
    """One for each run, and not so long that it could not be kept."""
    return hashlib.sha256(f"{request_id}\x1f{run.run_id}".encode()).hexdigest()
