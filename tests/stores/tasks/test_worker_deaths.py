"""Worker deaths of an activity are counted by every store, across restarts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.core.history.commands import ScheduleActivity
from penstock.core.model import (
    ActivityId,
    ActivityStatus,
    ActivityTimeouts,
    Blob,
    QueueId,
    RetrySchedule,
    RunStatus,
    TaskKind,
)
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import Leased, Poll
from penstock.core.scheduling.worker_deaths import WORKER_CRASHED
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.context import EngineContext
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows.starts import STANDALONE_TYPE, Start
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import direct
from tests.stores.store_operations import look
from tests.support.claims import leased_of
from tests.support.entropy import CountingEntropy

POLL = Poll("default", "w1", "orders", TaskKind.ACTIVITY)
FOR_EVER = RetrySchedule(1_000_000, True, (0,))


async def take(ctx: EngineContext) -> Leased:
    async def ensure(tx: Tx) -> QueueId:
        return (await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)).queue_id

    queue_id = await ctx.store.transact(ensure, key="queue:orders")
    [verdict] = await claim_tasks(ctx, queue_id, [POLL], None)
    return leased_of(verdict)[0]


async def crash(ctx: EngineContext) -> Leased:
    leased = await take(ctx)
    report = Report("w1", leased.task.lease_token or "", "digest")
    await activity_reports.fail(
        ctx, "default", leased.task.task_id, report, AttemptFailure("exit code 1", WORKER_CRASHED)
    )
    return leased


async def test_the_third_death_quarantines_whatever_the_policy_and_the_store(
    store: Store,
    reopened: Callable[[], Awaitable[Store]],
    address: object,
    wakeups: LocalWakeups,
) -> None:
    settings = load({"DW_AUTH_DRIVER": "none"})
    ctx = EngineContext(store, wakeups, CountingEntropy(), settings)
    await worker_registry.register(ctx, Registration("default", "w1", "orders", "python", activity_slots=9))
    command = ScheduleActivity("Charge", None, Blob("AA=="), FOR_EVER, ActivityTimeouts())
    begun = await direct.start_activity(
        ctx, Start("default", STANDALONE_TYPE, "orders", Blob("AA=="), workflow_id="charge-1"), command
    )
    await crash(ctx)
    await crash(ctx)
    if address is not None:
        ctx = EngineContext(await reopened(), wakeups, CountingEntropy(), settings)
    await crash(ctx)
    activity = await look(ctx.store, lambda tx: tx.activities.get(ActivityId(f"{begun.run.run_id}-a1")))
    run = await look(ctx.store, lambda tx: tx.runs.get(begun.run.run_id))
    assert activity is not None
    assert run is not None
    assert (activity.status, activity.worker_deaths, activity.quarantined) == (ActivityStatus.FAILED, 3, 1)
    assert (run.status, run.closed_reason) == (RunStatus.FAILED, "failed")
