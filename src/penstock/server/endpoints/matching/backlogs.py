"""The backlog of a queue's tasks of one kind: by level, by fairness key, and the limits in force."""

from __future__ import annotations

from penstock.core.limits.policies import KeyState
from penstock.core.model import WEIGHT_DEFAULT_MILLI, Queue, TaskKind
from penstock.core.scheduling.backlog import last_minute, share_asked, share_got
from penstock.core.scheduling.cohorts import is_stale
from penstock.core.scheduling.fairness import Lane
from penstock.core.timestamps import iso_or_none
from penstock.engine.visibility.task_queues import KeyView, QueueKindView, QueueView, key_status, running_of
from penstock.server.operation import Body
from penstock.wire.limits import queue_settings
from penstock.wire.limits.queue_rates import queue_rate
from penstock.wire.numbers import MICRO, MILLI
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
        "top_keys": [waiting_key(each, line, view.now_ms) for each in line.keys],
        "fairness": queue_settings.is_fair(line.queue),
        "rate": queue_rate(line.queue, active, view.now_ms),
        "settings": queue_settings.in_force(line.queue.policy.at(line.queue.at_ms)),
    }


def waiting_key(key: KeyView, line: QueueKindView, now_ms: int) -> Body:
    """A key for which tasks wait."""
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
        **_own(key.own),
    }


def idle_key(state: KeyState, queue: Queue, now_ms: int) -> Body:
    """A key for which no task waits: its settings and what it runs."""
    own = state.weight_milli
    status, open_at_ms = key_status(queue, state, WEIGHT_DEFAULT_MILLI if own is None else own, now_ms)
    return {
        "fairness_key": state.key,
        "priority": None,
        "priority_key": None,
        "backlog_count": 0,
        "weight": None if own is None else own / MILLI,
        "weight_source": None if own is None else "override",
        "share_asked": None,
        "share_got": None,
        "dispatches_last_minute": None,
        "oldest_wait_seconds": None,
        "running": running_of(queue, state),
        "state": status.value,
        "open_at": iso_or_none(open_at_ms),
        **_own(state),
    }


def _own(state: KeyState) -> Body:
    """The cap and the rate of a key's own."""
    return {
        "max_running": state.lease_cap,
        "rps_limit": None if state.rate_micro is None else state.rate_micro / MICRO,
    }


def _weight_source(lane: Lane) -> str:
    if lane.override_milli is not None:
        return "override"
    return "default" if lane.wanted_milli == WEIGHT_DEFAULT_MILLI else "task"


def _waited_s(since_ms: int | None, now_ms: int) -> float | None:
    return None if since_ms is None else max(0, now_ms - since_ms) / MILLI
