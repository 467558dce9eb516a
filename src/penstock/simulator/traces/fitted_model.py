"""From a trace to a model: streams by queue, type, key and level, hour by hour, with measured durations.

A stream is a Poisson process with the recorded rate of each hour; tasks that came at one instant, or waited when the
window began, are a backlog. Durations are the quantiles of the stream if it has enough tasks, else those of its type.
Retries are drawn with the recorded share of failures. What a model cannot say is said in its first lines: causes
between tasks, and the moments at which single tasks came. The replay of the trace itself has both.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

from penstock.simulator.measures import quantile
from penstock.simulator.traces.replay import RecordedTask, tasks_of
from penstock.simulator.traces.trace_file import RecordedWorker, Trace
from penstock.wire.limits.limit_paths import LimitSettings

HOUR_MS = 3_600_000
STREAMS_MAX = 2_000
SAMPLES_LEAST = 20
BURST_LEAST = 10
"""So many tasks of a stream at one instant are a backlog of the model."""
_QUANTILES = {
    "min": 0.0,
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
}
_LIMITED = ("queue", "group")
StreamKey = tuple[str, str, str, str, int]
"""Queue, kind, type, fairness key and level."""


@dataclass(slots=True)
class _Stream:
    tasks: list[RecordedTask] = field(default_factory=list)
    durations_ms: list[int] = field(default_factory=list)
    attempts: int = 0
    failures: int = 0
    pauses_ms: list[int] = field(default_factory=list)
    attempts_most: int = 1


def fit(trace: Trace) -> str:
    """A model file for the load of a trace."""
    streams: defaultdict[StreamKey, _Stream] = defaultdict(_Stream)
    of_type: defaultdict[str, list[int]] = defaultdict(list)
    for task in tasks_of(trace).values():
        stream = streams[task.queue, task.kind, task.type, task.key, task.level]
        _add(stream, task)
        of_type[task.type].extend(_durations(task))
    kept = dict(sorted(streams.items(), key=lambda each: (-len(each[1].tasks), each[0]))[:STREAMS_MAX])
    lines = [*_head(trace, len(streams) - len(kept)), ""]
    lines.append(f"duration = {_time(trace.duration_ms)}")
    started = datetime.fromtimestamp(trace.head.from_ms / 1000, UTC).replace(microsecond=0)
    lines.append(f"start = {started.isoformat().replace('+00:00', 'Z')}")
    for name in sorted(kept):
        lines += _arrivals(name, kept[name], of_type[name[2]], trace.duration_ms)
    lines += _workers(trace.tail.workers)
    lines += _limits(trace.tail.limits)
    return "\n".join(lines) + "\n"


def _head(trace: Trace, left_out: int) -> Iterator[str]:
    begun = datetime.fromtimestamp(trace.head.from_ms / 1000, UTC).isoformat(timespec="seconds")
    yield f"# Fitted to a trace of {_text(trace.duration_ms)} from {begun}."
    yield "# Tasks come at random moments with the recorded rates; ends cause no arrivals in a model."
    for missing in trace.tail.missing:
        yield f"# Not in the trace: {' '.join(missing.split())}."
    if left_out:
        yield f"# {left_out:,} streams with the fewest tasks are left out."


def _add(stream: _Stream, task: RecordedTask) -> None:
    stream.tasks.append(task)
    stream.durations_ms.extend(_durations(task))
    count = len(task.granted_at_ms)
    stream.attempts += count
    stream.failures += max(0, count - 1)
    stream.attempts_most = max(stream.attempts_most, count)
    for (ended_at_ms, _), ready_at_ms in zip(task.ends, task.ready_at_ms[1:], strict=False):
        stream.pauses_ms.append(max(0, ready_at_ms - ended_at_ms))


def _durations(task: RecordedTask) -> Iterator[int]:
    for granted_at_ms, (ended_at_ms, _) in zip(task.granted_at_ms, task.ends, strict=False):
        yield max(0, ended_at_ms - granted_at_ms)


def _arrivals(name: StreamKey, stream: _Stream, of_type: Sequence[int], window_ms: int) -> Iterator[str]:
    """The tables of one stream: what came at once, or was there at the beginning; and its rate in each hour."""
    common = [*_common(name, stream), *_durations_line(stream, of_type)]
    moments = Counter(max(0, each.ready_at_ms[0]) for each in stream.tasks)
    for at_ms, count in sorted(moments.items()):
        if count >= BURST_LEAST or not at_ms:
            yield from ("", "[[arrivals]]", *common[:1], f"count = {count}")
            if at_ms:
                yield f"starts = {_time(at_ms)}"
            yield from common[1:]
    hours: defaultdict[int, list[int]] = defaultdict(list)
    for at_ms, count in sorted(moments.items()):
        if at_ms and count < BURST_LEAST:
            hours[at_ms // HOUR_MS] += [at_ms] * count
    for _, found in sorted(hours.items()):
        yield from ("", "[[arrivals]]", *common[:1])
        yield from _rate(found, window_ms)
        yield from common[1:]


def _rate(found: Sequence[int], window_ms: int) -> Iterator[str]:
    """The rate of the arrivals of an hour, from the first to the last; a single one comes in its minute."""
    begins_ms, ends_ms = (found[0], found[-1] + 1) if len(found) > 1 else (found[0], found[0] + 60_000)
    ends_ms = max(begins_ms + 1, min(window_ms, ends_ms))
    yield f"per_minute = {len(found) / (ends_ms - begins_ms) * 60_000:.6g}"
    yield f"starts = {_time(begins_ms)}"
    yield f"ends = {_time(ends_ms)}"


def _common(name: StreamKey, stream: _Stream) -> Iterator[str]:
    queue, kind, type_, key, level = name
    yield f"queue = {_word(queue)}"
    yield f"type = {_word(type_)}"
    if key:
        yield f"key = {_word(key)}"
    if kind == "workflow":
        yield 'kind = "workflow"'
    yield f"priority = {level}"
    weights = [each.weight for each in stream.tasks if each.weight is not None]
    if weights and median(weights) != 1_000:
        yield f"weight = {median(weights) / 1000:g}"
    if kind == "workflow":
        return
    costs = [each.cost for each in stream.tasks]
    if any(costs):
        yield f"cost = {round(median(costs))}"
    if stream.failures:
        yield f"fails = {stream.failures / max(stream.attempts, 1):.4g}"
        yield f"attempts = {min(stream.attempts_most, 20)}"
        yield f"backoff = {_time(round(median(stream.pauses_ms or [0])))}"


def _durations_line(stream: _Stream, of_type: Sequence[int]) -> Iterator[str]:
    found = sorted(stream.durations_ms if len(stream.durations_ms) >= SAMPLES_LEAST else of_type)
    if found:
        points = {each: quantile(found, share) for each, share in _QUANTILES.items()} | {"max": found[-1]}
        yield "takes = { " + ", ".join(f"{each} = {_time(ms)}" for each, ms in points.items()) + " }"


def _workers(workers: Iterable[RecordedWorker]) -> Iterator[str]:
    """Workers that are alike, together."""
    alike = Counter(
        (
            each.queue,
            each.kind,
            each.slots,
            tuple(sorted(each.types)),
            each.joins_ms,
            each.leaves_ms,
            each.dies_ms,
        )
        for each in workers
    )
    for (queue, kind, slots, types, joins_ms, leaves_ms, dies_ms), count in sorted(
        alike.items(), key=lambda each: str(each[0])
    ):
        yield from ("", "[[workers]]", f"queue = {_word(queue)}", f"count = {count}", f"slots = {slots}")
        if kind == "workflow":
            yield 'kind = "workflow"'
        if types:
            yield f"types = [{', '.join(map(_word, types))}]"
        for name, at_ms in (("joins", joins_ms), ("leaves", leaves_ms), ("dies", dies_ms)):
            if at_ms:
                yield f"{name} = {_time(at_ms)}"


def _limits(limits: Iterable[LimitSettings]) -> Iterator[str]:
    """Limits at the beginning as tables of their own, later ones as changes."""
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    later: list[tuple[int, tuple[str, ...], dict[str, Any]]] = []
    for each in limits:
        path = _path(each)
        if each.at_ms <= 0:
            settings = first.setdefault(path, {})
            _merge(settings, each.settings)
        else:
            later.append((each.at_ms, path, dict(each.settings)))
    for path, settings in first.items():
        yield from _table(path, settings)
    for at_ms, path, settings in later:
        yield from ("", "[[changes]]", f"at = {_time(at_ms)}")
        yield from _table(("changes", *path), settings)


def _path(limits: LimitSettings) -> tuple[str, ...]:
    target = limits.target
    return (f"{target.scope}s", target.name) if target.scope in _LIMITED else (target.scope,)


def _merge(settings: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add settings; a queue of both kinds of tasks keeps those of its activities, which a model can have."""
    kinds = settings.get("task_queue_type"), more.get("task_queue_type")
    if None not in kinds and kinds[0] != kinds[1]:
        if kinds[0] == "activity":
            return
        settings.clear()
    settings.update(more)


def _table(path: Sequence[str], settings: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield f"[{'.'.join(_name(part) for part in path)}]"
    for name, value in settings.items():
        if value is not None:
            yield f"{_name(name)} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{_word(str(key))} = {_value(each)}" for key, each in value.items() if each is not None
        )
        return f"{{ {inner} }}"
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _name(part: str) -> str:
    return part if part.replace("_", "").replace("-", "").isalnum() and part.isascii() else _word(part)


def _word(text: str) -> str:
    """Text in quotation marks, as TOML and JSON both write it."""
    return json.dumps(text, ensure_ascii=True)


def _time(ms: int) -> str:
    """A duration as TOML: seconds as a number."""
    return f"{ms / 1000:.10g}" if ms % 1000 else str(ms // 1000)


def _text(ms: int) -> str:
    minutes = round(ms / 60_000)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(minutes, 1)} min"
