"""What a specification would do: its next moments, and warnings that need the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from penstock.core.schedules.preview import (
    SpecWarning,
    SpecWarningReason,
    in_words,
    shared_minute,
    spec_warnings,
)
from penstock.core.schedules.spec import FIRST_MS, ScheduleSpec, moments
from penstock.core.timestamps import MINUTE_MS
from penstock.engine.context import EngineContext
from penstock.engine.schedules.zones import zone
from penstock.ports.store import Tx


class SpecPreview(Struct, frozen=True):
    moments_ms: Sequence[int]
    words: Sequence[str]
    warnings: Sequence[SpecWarning]


async def preview(
    ctx: EngineContext, namespace: str, spec: ScheduleSpec, after_ms: int | None, count: int
) -> SpecPreview:
    """The next moments of an unsaved specification, in words, with warnings."""
    tz = zone(spec.time_zone)
    from_ms = await ctx.store.read(_now_ms) if after_ms is None else max(after_ms, FIRST_MS)

    def computed() -> tuple[list[int], list[SpecWarning]]:
        return list(islice(moments(spec, tz, from_ms), count)), list(spec_warnings(spec, tz, from_ms))

    # in a thread: many rare expressions take a second
    coming, warnings = await asyncio.to_thread(computed)
    if coming:
        first_ms = coming[0] - coming[0] % MINUTE_MS
        last_ms = first_ms + MINUTE_MS - 1
        others = await ctx.store.read(lambda tx: tx.schedules.count_due(namespace, first_ms, last_ms))
        warnings += [shared_minute(others, coming[0])] if others else []
    return SpecPreview(coming, in_words(spec), warnings)


async def _now_ms(tx: Tx) -> int:
    return tx.now_ms


async def unserved(
    ctx: EngineContext, namespace: str, task_queue: str, action_type: str, *, is_activity: bool
) -> Sequence[SpecWarning]:
    """A warning if no worker that is alive serves the queue and type of an action."""
    stale_after_ms = ctx.settings.polls.worker_stale_after_ms

    async def operation(tx: Tx) -> Sequence[SpecWarning]:
        workers = [
            each
            for each in await tx.workers.list(namespace, task_queue)
            if tx.now_ms - each.heartbeat_at_ms <= stale_after_ms
        ]
        if not workers:
            return [_no_worker(f"No worker serves the task queue {task_queue!r} now.")]
        types = [each.activity_types if is_activity else each.workflow_types for each in workers]
        if all(served and action_type not in served for served in types):
            return [_no_worker(f"No worker on {task_queue!r} runs the type {action_type!r} now.")]
        return []

    return await ctx.store.read(operation)


def _no_worker(message: str) -> SpecWarning:
    return SpecWarning(SpecWarningReason.NO_WORKER, f"{message} Fires start runs that wait for one.")
