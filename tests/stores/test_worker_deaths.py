"""The dead under an activity are counted by every store, over restarts of the server, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from penstock.core.history.commands import ScheduleActivity
from penstock.core.model import (
    ActivityId,
    ActivityStatus,
    ActivityTimeouts,
    Blob,
    QueueId,
    RetryPolicy,
    RunStatus,
    TaskKind,
)
from penstock.core.scheduling.deaths import WORKER_CRASHED
from penstock.core.scheduling.leases import Report
from penstock.engine import activity_reports, polls, starts, workers
from penstock.engine.activity_reports import Failure
from penstock.engine.house import House
from penstock.engine.polls import Leased, Poll
from penstock.engine.starts import STANDALONE_TYPE, Start
from penstock.engine.workers import Registration
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.stores.working import look
from tests.support.entropy import CountingEntropy

POLL = Poll("default", "w1", "orders", TaskKind.ACTIVITY)
FOR_EVER = RetryPolicy(1_000_000, True, (0,))


async def take(house: House) -> Leased:
    async def ensure(tx: Tx) -> QueueId:
        return (await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)).queue_id

    queue_id = await house.store.transact(ensure, key="queue:orders")
    [verdict] = await polls.claim(house, queue_id, [POLL], None)
    return verdict.leased[0]


async def crash(house: House) -> Leased:
    leased = await take(house)
    report = Report("w1", leased.task.lease_token or "", "digest")
    await activity_reports.fail(
        house, "default", leased.task.task_id, report, Failure("exit code 1", WORKER_CRASHED)
    )
    return leased


async def test_the_third_death_quarantines_whatever_the_policy_and_the_store(
    store: Store,
    reopened: Callable[[], Awaitable[Store]],
    address: object,
    wakeups: LocalWakeups,
) -> None:
    settings = load({"DW_AUTH_DRIVER": "none"})
    house = House(store, wakeups, CountingEntropy(), settings)
    await workers.register(house, Registration("default", "w1", "orders", "python", activity_slots=9))
    command = ScheduleActivity("Charge", None, Blob("AA=="), FOR_EVER, ActivityTimeouts())
    begun = await starts.start_activity(
        house, Start("default", STANDALONE_TYPE, "orders", Blob("AA=="), workflow_id="charge-1"), command
    )
    await crash(house)
    await crash(house)
    if address is not None:
        house = House(await reopened(), wakeups, CountingEntropy(), settings)
    await crash(house)
    activity = await look(house.store, lambda tx: tx.activities.get(ActivityId(f"{begun.run.run_id}-a1")))
    run = await look(house.store, lambda tx: tx.runs.get(begun.run.run_id))
    assert activity is not None
    assert run is not None
    assert (activity.status, activity.worker_deaths, activity.quarantined) == (ActivityStatus.FAILED, 3, 1)
    assert (run.status, run.closed_reason) == (RunStatus.FAILED, "failed")
