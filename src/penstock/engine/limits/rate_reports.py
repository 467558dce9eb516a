"""Queue rates reported by workers (`max_task_queue_activities_per_second`); the latest report wins."""

from __future__ import annotations

import structlog
from msgspec import Struct

from penstock.core.limits import rate_reports
from penstock.core.limits.rate_reports import RateConflict, RateReport, WorkerRate
from penstock.core.limits.rates import MICRO
from penstock.core.model import Queue, TaskKind
from penstock.core.scheduling.cohorts import is_stale
from penstock.engine.context import EngineContext
from penstock.engine.limits.policies import find_queue
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.wakeups import queue_topic

log = structlog.get_logger("penstock.rate_reports")


async def report_rate(ctx: EngineContext, namespace: str, name: str, word: RateReport) -> None:
    """Store the rate that a worker reports for its queue, if it is new or about to expire.

    Workers report with every poll, so an unchanged report takes no locks.
    """
    holds_ms = ctx.settings.polls.queue_rate_ttl_ms

    async def is_known(tx: Tx) -> bool:
        known = (await find_queue(tx, namespace, name, TaskKind.ACTIVITY)).worker_rate
        return rate_reports.is_renewed(known, word, tx.now_ms, holds_ms)

    async def operation(tx: Tx) -> _Outcome:
        found = await tx.queues.ensure(namespace, name, TaskKind.ACTIVITY)
        queue = await tx.queues.lock(found.queue_id)
        assert queue is not None, "ensure created the queue"
        return await _accept(ctx, tx, queue, word, holds_ms)

    if await ctx.store.read(is_known):
        return
    key = f"policy:{namespace}:{name}:{TaskKind.ACTIVITY}"
    outcome = await ctx.store.transact(operation, key=key, tx_class=TransactionClass.CHANGE)
    if outcome.began is not None:
        _tell(namespace, name, outcome.began)
    elif outcome.is_change:
        _log_change(namespace, name, word, outcome.before)


class _Outcome(Struct, frozen=True):
    """The effect of a reported rate."""

    is_change: bool = False
    """Whether the queue's rate changed, other than in a conflict that was logged already."""
    before: WorkerRate | None = None
    """The reported rate in force until then."""
    began: RateConflict | None = None


async def _accept(ctx: EngineContext, tx: Tx, queue: Queue, word: RateReport, holds_ms: int) -> _Outcome:
    """Record a report; returns whether it changes the rate and whether a conflict begins."""
    known = queue.worker_rate
    if rate_reports.is_renewed(known, word, tx.now_ms, holds_ms):
        return _Outcome()
    lives = await _other_worker_is_alive(ctx, tx, queue, word)
    accepted = rate_reports.apply_report(known, word, tx.now_ms, holds_ms, rival_lives=lives)
    tx.policies.save_worker_rate(queue.queue_id, accepted.rate)
    if accepted.is_change:
        tx.wake(queue_topic(queue.queue_id))
    held = known if known is not None and known.holds_at(tx.now_ms) else None
    return _Outcome(accepted.is_change and accepted.rate.conflict is None, held, accepted.began)


async def _other_worker_is_alive(ctx: EngineContext, tx: Tx, queue: Queue, word: RateReport) -> bool:
    """Whether the worker whose different rate is in force is still active."""
    known = queue.worker_rate
    if known is None or not rate_reports.is_rival(known, word, tx.now_ms):
        return False
    rival = await tx.workers.get(queue.namespace, known.worker_id)
    if rival is None or rival.task_queue != queue.name:
        return False
    return not is_stale(rival, tx.now_ms, ctx.settings.polls.worker_stale_after_ms)


def _log_change(namespace: str, name: str, word: RateReport, before: WorkerRate | None) -> None:
    """Log that a worker changed the rate of its queue."""
    log.info(
        "queue.rate_conveyed",
        namespace=namespace,
        task_queue=name,
        worker_id=word.worker_id,
        per_second=word.micro / MICRO,
        per_second_before=None if before is None else before.micro / MICRO,
        worker_id_before=None if before is None else before.worker_id,
    )


def _tell(namespace: str, name: str, conflict: RateConflict) -> None:
    log.warning(
        "queue.rate_conflict",
        namespace=namespace,
        task_queue=name,
        worker_id=conflict.worker_id,
        per_second=conflict.micro / MICRO,
        other_worker_id=conflict.by,
        other_per_second=conflict.by_micro / MICRO,
        advice="Give all workers of the queue one max_task_queue_activities_per_second, or set the rate yourself "
        f"with penstock task-queue set-rate {name}.",
    )
