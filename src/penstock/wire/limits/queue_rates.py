"""The dispatch rate of a queue's activities: its limit, the source of the limit, and the rate caps of its workers.

The rate of a queue is enforced by the servers, for all workers together. The rate cap of a worker is enforced by that
worker, for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.limits import rates
from penstock.core.limits.policies import LimitSetting
from penstock.core.limits.rate_reports import RateConflict, WorkerRate
from penstock.core.model import Queue, TaskKind, WorkerRecord
from penstock.core.timestamps import iso, iso_or_none
from penstock.wire.numbers import MICRO, MILLI, to_micro
from penstock.wire.responses import Body

LOCAL_CAP = "max_activities_per_second"


def queue_rate(queue: Queue, workers: Sequence[WorkerRecord], now_ms: int) -> Body:
    """The rate limit of a queue with its source; `workers` are those that poll it."""
    rate = queue.rules.queue_rate
    opens = None if rate is None else rates.open_at_ms(rate, queue.paid_until_ns, now_ms)
    body: Body = {
        "limit": None if rate is None else rate.micro / MICRO,
        "source": queue.rules.queue_rate_source.value,
        "next_dispatch_at": None if opens is None or opens <= now_ms else iso(opens),
    }
    if queue.kind is TaskKind.WORKFLOW:
        return body
    return body | {
        "burst_seconds": None if rate is None else rate.burst_ms / MILLI,
        "operator": _per_second(queue.policy.at(queue.at_ms).number(LimitSetting.QUEUE_RATE)),
        "worker": conveyed(queue.reported_rate),
        "system": _per_second(queue.limits.rate_max_micro),
        "conflict": _conflict(queue.reported_rate, now_ms),
        "worker_caps": _worker_caps(workers, None if rate is None else rate.micro),
    }


def conveyed(rate: WorkerRate | None) -> Body | None:
    """The rate that workers reported, and when it lapses unless it is reported again."""
    if rate is None:
        return None
    return {
        "value": rate.micro / MICRO,
        "worker_id": rate.worker_id,
        "burst_seconds": None if rate.burst_ms is None else rate.burst_ms / MILLI,
        "updated_at": iso(rate.at_ms),
        "lapses_at": iso_or_none(rate.until_ms),
    }


def worker_rate_cap(worker: WorkerRecord) -> float | None:
    """The rate cap that a worker enforces itself, in activities per second; None if it has none."""
    advertised = worker.advertised.get(LOCAL_CAP)
    return float(advertised) if isinstance(advertised, int | float) else None


def _conflict(rate: WorkerRate | None, now_ms: int) -> Body | None:
    seen: RateConflict | None = None if rate is None else rate.conflict_at(now_ms)
    if seen is None:
        return None
    return {
        "workers": [
            {"worker_id": seen.worker_id, "value": seen.micro / MICRO},
            {"worker_id": seen.by, "value": seen.by_micro / MICRO},
        ],
        "since": iso(seen.since_ms),
        "seen_at": iso(seen.at_ms),
    }


def _worker_caps(workers: Sequence[WorkerRecord], limit_micro: int | None) -> Body:
    """The sum of the rate caps of the workers, and whether it or the limit of the queue is lower."""
    caps = [worker_rate_cap(each) for each in workers if each.activity_slots]
    capped = [each for each in caps if each is not None]
    total_micro = sum(map(to_micro, capped)) if caps and len(capped) == len(caps) else None
    return {
        "limit": _per_second(total_micro),
        "capped_workers": len(capped),
        "uncapped_workers": len(caps) - len(capped),
        "tighter": _lower_cap(total_micro, limit_micro),
    }


def _lower_cap(workers_micro: int | None, queue_micro: int | None) -> str | None:
    if workers_micro is None:
        return None if queue_micro is None else "queue"
    return "workers" if queue_micro is None or workers_micro < queue_micro else "queue"


def _per_second(micro: int | None) -> float | None:
    return None if micro is None else micro / MICRO
