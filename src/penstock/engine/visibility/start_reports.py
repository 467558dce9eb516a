"""Waits that this server saw become part of the time series; forecasts are judged when their time is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.model import QueueId, Task, TaskId, TaskState
from penstock.core.series.samples import COARSE, WAIT_KEYS_MAX, QueueSample
from penstock.core.series.waits import KeyWaits, added
from penstock.core.why.forecast_score import StartForecast
from penstock.core.why.values import StartEstimate
from penstock.engine.context import EngineContext
from penstock.ports.gather import gather
from penstock.ports.store import Tx

JUDGED_AT_ONCE = 50


def expect(ctx: EngineContext, task: Task | None, estimate: StartEstimate, now_ms: int) -> None:
    """Remember the forecast of a waiting task; one without an end says nothing that can be judged."""
    if task is None or task.state is not TaskState.READY:
        return
    if estimate.from_ms is not None and estimate.to_ms is not None:
        ctx.starts.expect(StartForecast(task.task_id, now_ms, estimate.from_ms, estimate.to_ms))


async def judge_overdue(ctx: EngineContext) -> None:
    """Judge forecasts whose range is over by the rows of their tasks."""

    async def operation(tx: Tx) -> tuple[int, Sequence[tuple[StartForecast, Task | None]]]:
        late = ctx.starts.overdue(tx.now_ms, JUDGED_AT_ONCE)
        tasks = await gather(*(tx.tasks.get(TaskId(each.task_id)) for each in late))
        return tx.now_ms, list(zip(late, tasks, strict=True))

    now_ms, found = await ctx.store.read(operation)
    for forecast, task in found:
        if task is not None and task.state is TaskState.READY:
            ctx.starts.judge(forecast.task_id, None, now_ms)
        elif task is not None and task.state is TaskState.LEASED:
            ctx.starts.judge(forecast.task_id, task.leased_at_ms, now_ms)
        ctx.starts.forget(forecast.task_id)


def with_waits(sample: QueueSample, waits: Sequence[KeyWaits]) -> QueueSample:
    """A sample with waits that this server saw; it keeps those of the keys with the most."""
    return replace(sample, waits=added(sample.waits, waits)[:WAIT_KEYS_MAX]) if waits else sample


async def add_waits(tx: Tx, waits: Mapping[QueueId, Sequence[KeyWaits]]) -> None:
    """Add the waits that this server saw to the latest samples, which another server took.

    Two servers that add to one sample in the same instant may lose the waits of one of them: the series is a picture,
    and nothing decides by it.
    """
    queue_ids = list(waits)
    for queue_id, sample in zip(queue_ids, await tx.series.latest(queue_ids, COARSE), strict=True):
        if sample is not None:
            tx.series.save(queue_id, COARSE, with_waits(sample, waits[queue_id]))


def without_waits(sample: QueueSample) -> QueueSample:
    """A sample as the fine ring keeps it: an hour of it is read once a second, and histograms are long."""
    return replace(sample, waits=())


async def waits_between(tx: Tx, queue_id: QueueId, from_ms: int, to_ms: int) -> Sequence[KeyWaits]:
    """The waits of an interval, from the beginning of its first coarse step on."""
    found = await tx.series.between(queue_id, COARSE, COARSE.begin_ms(from_ms), to_ms)
    return added(*(each.waits for each in found))[:WAIT_KEYS_MAX]
