"""A report is checked against its timeouts when it arrives, before any sweeper runs."""

from __future__ import annotations

import pytest

from penstock.core.history.commands import ScheduleActivity
from penstock.core.model import ActivityTimeouts, Blob, QueueId, RetrySchedule, RunStatus, TaskKind
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows.starts import STANDALONE_TYPE, Start
from penstock.errors import LeaseLost, Reason
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import direct
from tests.faults.deadlines import until
from tests.stores.store_operations import look
from tests.support.claims import leased_of
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy

POLL = Poll("default", "w1", "orders", TaskKind.ACTIVITY)
LIMIT_MS = 50


async def test_a_result_after_its_timeout_is_not_a_success_on_any_store(
    store: Store, wakeups: LocalWakeups, clock: ManualClock
) -> None:
    ctx = EngineContext(store, wakeups, CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))
    await worker_registry.register(ctx, Registration("default", "w1", "orders", "python", activity_slots=9))
    limits = ActivityTimeouts(start_to_close_ms=LIMIT_MS)
    command = ScheduleActivity("Charge", None, Blob("AA=="), RetrySchedule(), limits)
    begun = await direct.start_activity(
        ctx, Start("default", STANDALONE_TYPE, "orders", Blob("AA=="), workflow_id="charge-1"), command
    )

    async def ensure(tx: Tx) -> QueueId:
        return (await tx.queues.ensure("default", "orders", TaskKind.ACTIVITY)).queue_id

    queue_id = await store.transact(ensure, key="queue:orders")
    [verdict] = await claim_tasks(ctx, queue_id, [POLL], None)
    [leased] = leased_of(verdict)
    assert leased.activity is not None
    deadline_ms = leased.activity.deadline_at_ms or 0
    clock.advance(LIMIT_MS)

    async def is_over() -> bool:
        async def now(tx: Tx) -> int:
            return tx.now_ms

        return await store.read(now) >= deadline_ms

    await until("the timeout has passed by the clock of the store", is_over)
    report = Report("w1", leased.task.lease_token or "", "digest")
    with pytest.raises(LeaseLost) as refusal:
        await direct.complete_activity(ctx, "default", leased.task.task_id, report, Blob("AA=="))
    assert (refusal.value.reason, refusal.value.details["timeout_kind"]) == (
        Reason.STALE_ATTEMPT,
        "start_to_close",
    )
    run = await look(store, lambda tx: tx.runs.get(begun.run.run_id))
    assert run is not None
    assert (run.status, run.closed_reason) == (RunStatus.FAILED, "timed_out")
