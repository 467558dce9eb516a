"""Batch operations: cancel, terminate or signal the open runs that a query finds, newest first."""

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
from penstock.engine.visibility.run_search import RunCount, RunCriteria
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import CANCEL_REQUESTED_OUTCOME, EndMode
from penstock.errors import PenstockError, Reason, Unavailable
from penstock.ports.tables.visibility import PageStart

AT_ONCE = 50
"""How many runs are processed concurrently: enough to share commits, few enough not to delay others."""
SAMPLE = 10
FAILURES_REPORTED = 20
_NOTHING_TO_DO = (
    Reason.RUN_NOT_ACTIVE,
    Reason.HISTORICAL_RUN_COMMAND_REJECTED,
    Reason.INSTANCE_NOT_FOUND,
    Reason.RUN_NOT_FOUND,
)
"""Errors after which there is nothing left to do for a run."""


class BatchAction(StrEnum):
    """What a batch operation does to each run."""

    CANCEL = "cancel"
    TERMINATE = "terminate"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True)
class BatchJob:
    """An action on the open runs that match `wanted`. A signal reaches each run once per request id."""

    act: BatchAction
    wanted: RunCriteria
    request_id: str
    reason: str | None = None
    signal_name: str = ""
    arguments: Blob = field(default=Blob(""))

    @property
    def open_only(self) -> RunCriteria:
        return replace(self.wanted, only=OPEN)


class BatchRunFailure(Struct, frozen=True):
    """A run that the action failed for."""

    run: Run
    error: PenstockError


class BatchOutcome(Struct, frozen=True):
    """The results of one call, and where the next one continues."""

    matched: int
    acted: int
    skipped: int
    failures: Sequence[BatchRunFailure]
    after: PageStart | None
    asked: int = 0
    """Of `acted`: runs whose code received a cancel request and which are still open."""


class Preview(Struct, frozen=True):
    """The number of matching runs and a sample."""

    count: RunCount
    sample: Sequence[Run]


async def preview(ctx: EngineContext, batch: BatchJob) -> Preview:
    """Count the runs that would be acted on, with the newest of them, without acting."""
    counted = await run_search.count(ctx, batch.open_only)
    sample = await run_search.page(ctx, batch.open_only, None, SAMPLE)
    return Preview(counted, sample.runs)


async def run_batch(ctx: EngineContext, batch: BatchJob, after: PageStart | None, most: int) -> BatchOutcome:
    """Act on up to `most` runs, each in its own transaction. Repeating the call finds only what is left."""
    found = await run_search.page(ctx, batch.open_only, after, most)
    acted = asked = 0
    failures: list[BatchRunFailure] = []
    for first in range(0, len(found.runs), AT_ONCE):
        runs = found.runs[first : first + AT_ONCE]
        for run, outcome in zip(
            runs, await asyncio.gather(*(_one(ctx, batch, run) for run in runs)), strict=True
        ):
            if not isinstance(outcome, PenstockError):
                acted += 1
                asked += outcome == CANCEL_REQUESTED_OUTCOME
            elif outcome.reason not in _NOTHING_TO_DO:
                failures.append(BatchRunFailure(run, outcome))
    skipped = len(found.runs) - acted - len(failures)
    return BatchOutcome(len(found.runs), acted, skipped, failures, found.after, asked)


async def _one(ctx: EngineContext, batch: BatchJob, run: Run) -> str | PenstockError:
    """Act on one run; returns the outcome or the run's error. Raises if the store is unavailable."""
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
    """A request id per run, hashed to a bounded length."""
    return hashlib.sha256(f"{request_id}\x1f{run.run_id}".encode()).hexdigest()
