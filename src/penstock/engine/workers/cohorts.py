"""Build-id cohorts: drain, resume and promote, effective at the next poll."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.core.model import Cohort, WorkerStatus
from penstock.core.scheduling.cohorts import ACTIVE, DRAINING, CohortView, cohort_views
from penstock.engine.context import EngineContext
from penstock.engine.matching.query_tasks import notify_pollers
from penstock.ports.store import Tx


async def drain(ctx: EngineContext, namespace: str, task_queue: str, build_id: str | None) -> Cohort:
    """Stop dispatching to the cohort and wake its open polls. Repeated, it keeps the first drain time."""
    return await _change(ctx, namespace, task_queue, build_id, DRAINING)


async def resume(ctx: EngineContext, namespace: str, task_queue: str, build_id: str | None) -> Cohort:
    return await _change(ctx, namespace, task_queue, build_id, ACTIVE)


async def _change(
    ctx: EngineContext, namespace: str, task_queue: str, build_id: str | None, intent: str
) -> Cohort:
    async def operation(tx: Tx) -> Cohort:
        cohort = await _cohort(tx, namespace, task_queue, build_id)
        drained_at_ms = (cohort.drained_at_ms or tx.now_ms) if intent == DRAINING else None
        cohort = replace(cohort, drain_intent=intent, drained_at_ms=drained_at_ms, updated_at_ms=tx.now_ms)
        tx.cohorts.save(cohort)
        status = WorkerStatus.DRAINING if intent == DRAINING else WorkerStatus.ACTIVE
        for worker in await tx.workers.list(namespace, task_queue):
            if (worker.build_id or "") == cohort.build_id and worker.status is not status:
                tx.workers.mark(worker, status)
        await notify_pollers(tx, namespace, task_queue)
        return cohort

    return await ctx.store.transact(operation, key=f"cohort:{namespace}:{task_queue}")


async def promote(ctx: EngineContext, namespace: str, task_queue: str, build_id: str | None) -> Cohort:
    """Pin new runs of the queue to this cohort; the previously promoted one is rolled back."""

    async def operation(tx: Tx) -> Cohort:
        cohort = await _cohort(tx, namespace, task_queue, build_id)
        for other in await tx.cohorts.list(namespace, task_queue):
            if other.new_start_selected and other.build_id != cohort.build_id:
                tx.cohorts.save(
                    replace(other, new_start_selected=0, rolled_back_at_ms=tx.now_ms, updated_at_ms=tx.now_ms)
                )
        if not cohort.new_start_selected:
            cohort = replace(
                cohort,
                new_start_selected=1,
                promoted_at_ms=tx.now_ms,
                rolled_back_at_ms=None,
                updated_at_ms=tx.now_ms,
            )
        tx.cohorts.save(cohort)
        return cohort

    return await ctx.store.transact(operation, key=f"cohort:{namespace}:{task_queue}")


async def _cohort(tx: Tx, namespace: str, task_queue: str, build_id: str | None) -> Cohort:
    found = await tx.cohorts.get(namespace, task_queue, build_id or "")
    return found or Cohort(namespace, task_queue, build_id or "", ACTIVE, None, None, None, 0, tx.now_ms)


async def list_cohorts(ctx: EngineContext, namespace: str, task_queue: str) -> Sequence[CohortView]:
    async def operation(tx: Tx) -> Sequence[CohortView]:
        workers = await tx.workers.list(namespace, task_queue)
        cohorts = await tx.cohorts.list(namespace, task_queue)
        return cohort_views(workers, cohorts, tx.now_ms, ctx.settings.polls.worker_stale_after_ms)

    return await ctx.store.read(operation, long=True)
