"""The backlog of a queue's tasks of one kind: by level, by fairness key, and the limits in force."""

from __future__ import annotations

from penstock.core.model import WEIGHT_DEFAULT_MILLI, TaskKind
from penstock.core.scheduling.backlog import last_minute, share_asked, share_got
from penstock.core.scheduling.cohorts import is_stale
from penstock.core.scheduling.fairness import Lane
from penstock.core.timestamps import iso_or_none
from penstock.engine.visibility.task_queues import KeyView, QueueKindView, QueueView
from penstock.server.operation import Body
from penstock.wire.limits import queue_settings
from penstock.wire.limits.queue_rates import queue_rate
from penstock.wire.numbers import MILLI
from penstock.wire.responses import priority


def backlog(view: QueueView, kind: TaskKind, stale_after_ms: int) -> Body:
    line = view.lines[kind]
    active = [each for each in view.workers if not is_stale(each, view.now_ms, stale_after_ms)]
    return {
        "backlog_by_priority": [
            {
                **priority(each.level),
                "backlog_count": each.count,
                "oldest_wait_seconds": _waited_s(each.oldest_ms, view.now_ms),
                "key_count": each.keys,
            }
            for each in line.levels
        ],
        "top_keys": [_key(each, line, view.now_ms) for each in line.keys],
        "fairness": queue_settings.is_fair(line.queue),
        "rate": queue_rate(line.queue, active, view.now_ms),
        "settings": queue_settings.in_force(line.queue.policy.at(line.queue.at_ms)),
    }


def _key(key: KeyView, line: QueueKindView, now_ms: int) -> Body:
    lane, level = key.part.lane, line.level(key.part.lane.level)
    got = share_got(key.part, level, now_ms)
    return {
        "fairness_key": lane.key,
        **priority(lane.level),
        "backlog_count": lane.count,
        "weight": lane.effective_milli / MILLI,
        "weight_source": _weight_source(lane),
        "share_asked": round(share_asked(lane, level), 6),
        "share_got": None if got is None else round(got, 6),
        "dispatches_last_minute": round(last_minute(key.part, now_ms)),
        "oldest_wait_seconds": _waited_s(key.part.oldest_ms, now_ms),
        "running": key.running,
        "state": key.status.value,
        "open_at": iso_or_none(key.open_at_ms),
    }


def _weight_source(lane: Lane) -> str:
    if lane.override_milli is not None:
        return "override"
    return "default" if lane.wanted_milli == WEIGHT_DEFAULT_MILLI else "task"


def _waited_s(since_ms: int | None, now_ms: int) -> float | None:
    return None if since_ms is None else max(0, now_ms - since_ms) / MILLI
