"""Whom tasks of a line wait for: workers that keep their runs in memory and are about to ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from penstock.core.model import QueueId, WorkerRecord
from penstock.core.scheduling.cohorts import check_may_poll, is_worth_waiting_for
from penstock.engine.context import EngineContext
from penstock.errors import PenstockError
from penstock.ports.store import Tx


class Reserved(Struct, frozen=True):
    """The workers for which ready tasks of a line are reserved."""

    until: Mapping[str, int] = field(default_factory=dict)
    """When the first task of each is for anybody."""
    gone: tuple[str, ...] = ()
    """Those of them that ask no more: what was reserved for them is for anybody already."""

    def like_the_first(self, worker_ids: Sequence[str]) -> Sequence[bool]:
        """Which of some workers may have the same tasks as the first of them."""
        return [self.open_to(each) == self.open_to(worker_ids[0]) for each in worker_ids]

    def open_to(self, worker_id: str) -> tuple[str, ...]:
        """Whose reserved tasks a worker may have."""
        own = (worker_id,) if worker_id in self.until else ()
        return (*own, *self.gone)

    def first_for_anybody_ms(self, worker_id: str) -> int | None:
        """When the first task that waits for somebody else is for anybody; None: there is none."""
        others = [until for name, until in self.until.items() if name not in self.open_to(worker_id)]
        return min(others, default=None)


NOBODY = Reserved()


async def load_sticky(
    ctx: EngineContext, tx: Tx, queue_id: QueueId, polling: Sequence[WorkerRecord]
) -> Reserved:
    """Whom the tasks of a line wait for. Whoever polls is there; of the others it is asked whether they are."""
    until = await tx.tasks.sticky(queue_id)
    absent = sorted(set(until) - {worker.worker_id for worker in polling})
    if not absent:
        return Reserved(until)
    namespace, task_queue = polling[0].namespace, polling[0].task_queue
    intents = {cohort.build_id: cohort for cohort in await tx.cohorts.list(namespace, task_queue)}
    stale_after_ms = ctx.settings.polls.worker_stale_after_ms
    gone = []
    for name, worker in zip(absent, await tx.workers.get_many(namespace, absent), strict=True):
        try:
            worker = check_may_poll(worker, name, task_queue, None, intents)
        except PenstockError:
            gone.append(name)
        else:
            gone += [] if is_worth_waiting_for(worker, tx.now_ms, stale_after_ms) else [name]
    return Reserved(until, tuple(gone))
