"""Calibration before advice: does the replay of the unchanged window meet what was recorded?

Compared are the grants of each queue in the window, which must agree within 1 %, and the p95 wait of each fairness key
that was granted often enough, within 10 %. A wait of a few milliseconds is the time of a poll, which a simulation does
not have, so differences below `POLL_MS` are none. Waits count from the beginning of the window at the earliest. Tasks
that ran already when it began are left out of both, because they begin anew in a replay. A window in which the clock
was set back has no true waits, and one without grants proves nothing: neither is trusted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from penstock.core.model import TaskKind
from penstock.simulator.comparison import Calibration, KeyCalibration, QueueCalibration, wait_text
from penstock.simulator.measures import Measures, QueueName, quantile
from penstock.simulator.traces.trace_load import TraceLoad

GRANTS_WITHIN = 0.01
WAITS_WITHIN = 0.10
POLL_MS = 100
GRANTS_LEAST = 20
"""With fewer grants a key has no p95 to speak of."""
REASONS_MAX = 3
_Waits = dict[QueueName, dict[str, list[int]]]


def calibrate(load: TraceLoad, measures: Measures) -> Calibration:
    """Compare a trace with the replay of its unchanged window."""
    recorded, replayed = _recorded(load), _replayed(load, measures)
    names = sorted({*recorded, *replayed}, key=lambda each: (each[0], each[1].value))
    queues = [_of_queue(name, recorded.get(name, {}), replayed.get(name, {})) for name in names]
    reasons = list(_reasons(load, queues))
    arrivals = len(load.replay.tasks)
    return Calibration(
        is_met=not reasons,
        doubt=_doubt(load, reasons),
        open_share=1 - load.replay.closed / arrivals,
        queues=queues,
    )


def _waits() -> _Waits:
    return defaultdict(lambda: defaultdict(list))


def _recorded(load: TraceLoad) -> _Waits:
    found, window_ms = _waits(), load.trace.duration_ms
    for index, task in enumerate(load.replay.tasks):
        if index in load.replay.running:
            continue
        waits = found[task.queue, TaskKind(task.kind)][task.key]
        for ready_at_ms, granted_at_ms in zip(task.ready_at_ms, task.granted_at_ms, strict=False):
            if granted_at_ms <= window_ms:
                waits.append(max(0, granted_at_ms - max(0, ready_at_ms)))
    return found


def _replayed(load: TraceLoad, measures: Measures) -> _Waits:
    found, window_ms = _waits(), load.trace.duration_ms
    each = measures.dispatches
    for at_ms, index, wait_ms in zip(each[::3], each[1::3], each[2::3], strict=True):
        if at_ms <= window_ms and index not in load.replay.running:
            arrival = load.replay.workload.arrivals[index]
            found[arrival.queue, arrival.kind][arrival.key].append(wait_ms)
    return found


def _of_queue(
    name: QueueName, recorded: dict[str, list[int]], replayed: dict[str, list[int]]
) -> QueueCalibration:
    was, now = (sum(map(len, each.values())) for each in (recorded, replayed))
    keys = [
        _of_key(key, waits, replayed.get(key, []))
        for key, waits in sorted(recorded.items())
        if len(waits) >= GRANTS_LEAST
    ]
    return QueueCalibration(
        name[0], name[1].value, was, now, abs(now - was) <= max(1, was * GRANTS_WITHIN), keys
    )


def _of_key(key: str, recorded: Sequence[int], replayed: Sequence[int]) -> KeyCalibration:
    was, now = quantile(sorted(recorded), 0.95), quantile(sorted(replayed), 0.95)
    return KeyCalibration(key, was, now, abs(now - was) <= max(POLL_MS, was * WAITS_WITHIN))


def _reasons(load: TraceLoad, queues: Sequence[QueueCalibration]) -> Iterator[str]:
    """What is not reproduced."""
    steps = len(load.trace.tail.clock_steps)
    if steps:
        yield f"the server's clock was set back {steps} times in the window"
    if not any(queue.recorded_grants for queue in queues):
        yield "no task was granted in the window, so nothing can be compared"
    for queue in queues:
        if not queue.is_met:
            yield f"{queue.queue} had {queue.recorded_grants:,} grants, and {queue.replayed_grants:,} in the replay"
    for queue in queues:
        for key in queue.keys:
            if not key.is_met:
                was, now = wait_text(key.recorded_p95_ms), wait_text(key.replayed_p95_ms)
                whom = f"key {key.key} in {queue.queue}" if key.key else queue.queue
                yield f"the p95 wait of {whom} was {was}, and {now} in the replay"


def _doubt(load: TraceLoad, reasons: Sequence[str]) -> str:
    if not reasons:
        return ""
    more = f"; and {len(reasons) - REASONS_MAX} more" if len(reasons) > REASONS_MAX else ""
    missing = load.trace.tail.missing
    why = f" The trace lacks {'; '.join(missing)}." if missing else ""
    return f"Do not trust this: {'; '.join(reasons[:REASONS_MAX])}{more}.{why}"
