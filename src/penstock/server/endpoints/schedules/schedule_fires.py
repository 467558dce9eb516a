"""Fires of schedules that a person asks for, and previews: trigger, backfill, preview."""

from __future__ import annotations

from penstock.core.schedules.effects import drain_s
from penstock.core.schedules.overlap import Overlap
from penstock.core.timestamps import iso
from penstock.engine.schedules import manual_fires, previews, zones
from penstock.engine.schedules.manual_fires import BackfillEffect
from penstock.server.endpoints.schedules import schedule_requests as parsed
from penstock.server.endpoints.schedules.schedules import schedule_id, with_warnings
from penstock.server.operation import Body, OperationCall, Response
from penstock.wire.schedules import bodies
from penstock.wire.schedules.requests import BackfillSchedule, PreviewSchedule, TriggerSchedule
from penstock.wire.workflows.commands import instant_of


async def trigger(call: OperationCall) -> Response:
    request: TriggerSchedule = call.body
    name = schedule_id(call)
    done = await manual_fires.trigger(call.ctx, call.namespace, name, _overlap(request.overlap_policy))
    return Response(bodies.triggered(name, done.fire, done.buffer_depth))


async def backfill(call: OperationCall) -> Response:
    request: BackfillSchedule = call.body
    name = schedule_id(call)
    start_ms, end_ms = parsed.period(request.start_time, request.end_time)
    done = await manual_fires.backfill(
        call.ctx,
        call.namespace,
        name,
        start_ms,
        end_ms,
        _overlap(request.overlap_policy),
        dry_run=bool(request.dry_run),
    )
    if request.dry_run:
        planned = [{"fire_time": iso(at_ms), "outcome": "planned"} for at_ms in done.moments_ms]
        return Response(
            {
                "schedule_id": name,
                "outcome": "dry_run",
                "fires_attempted": len(planned),
                "results": planned,
                "effect": _effect(done.effect),
            }
        )
    results = [
        bodies.backfilled(at_ms, each) for at_ms, each in zip(done.moments_ms, done.fires, strict=True)
    ]
    return Response(
        {
            "schedule_id": name,
            "outcome": "backfill_started",
            "fires_attempted": len(results),
            "results": results,
        }
    )


async def preview(call: OperationCall) -> Response:
    request: PreviewSchedule = call.body
    spec = parsed.checked_spec(parsed.document_of(request.spec), request.jitter_seconds or 0)
    after_ms = instant_of(request.after, "after")
    found = await previews.preview(call.ctx, call.namespace, spec, after_ms, request.count)
    return Response(
        {
            "next_fire_times": [iso(each) for each in found.moments_ms],
            "in_words": list(found.words),
            "timezone": spec.time_zone,
            "zone_data_version": zones.VERSION,
            "warnings": [],
        }
        | with_warnings([*found.warnings])
    )


def _effect(found: BackfillEffect | None) -> Body | None:
    """What a backfill would do."""
    if found is None:
        return None
    plan, load = found.plan, found.load
    seconds = drain_s(plan, load)
    return {
        "starts": plan.starts,
        "waits": plan.waits,
        "skips": plan.skips,
        "repeated": plan.repeated,
        "beyond_max_runs": plan.beyond_max_runs,
        "ends_runs": plan.ends_runs,
        "task_queue": load.task_queue,
        "waiting_tasks": load.waiting,
        "rate_per_second": load.rate_per_s,
        "paused": load.paused,
        "drain_seconds": None if seconds is None else round(seconds, 1),
        "sentences": list(found.sentences),
    }


def _overlap(policy: str | None) -> Overlap | None:
    return None if policy is None else Overlap(policy)
