"""Requests and responses of the time series of queues. A point is its instant in epoch milliseconds, and a value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from penstock.core.series.samples import GateUse, QueueSample, SeriesMetric
from penstock.core.series.waits import KeyWaits, quantile_ms
from penstock.wire.fields import Name
from penstock.wire.requests import RequestModel

Body = dict[str, Any]
Moment = Annotated[str, Meta(min_length=1, max_length=40)]
"""An instant in ISO 8601."""


Metric = Literal[
    "added_per_second",
    "dispatched_per_second",
    "ready",
    "dispatchable",
    "running",
    "delayed",
    "oldest_wait_seconds",
    "gate_use",
    "shares",
    "waits",
]
"""The values of `SeriesMetric`."""


class ReadSeries(RequestModel):
    queue: Name
    kind: Literal["workflow", "activity"] = "activity"
    metric: Metric | None = None
    """One metric; all of them if omitted."""
    from_: Moment | None = field(default=None, name="from")
    to: Moment | None = None


_SCALARS: Mapping[SeriesMetric, Callable[[QueueSample, float], float]] = {
    SeriesMetric.ADDED: lambda sample, step_s: sample.added / step_s,
    SeriesMetric.DISPATCHED: lambda sample, step_s: sample.dispatched / step_s,
    SeriesMetric.READY: lambda sample, _: sample.ready,
    SeriesMetric.DISPATCHABLE: lambda sample, _: sample.dispatchable,
    SeriesMetric.RUNNING: lambda sample, _: sample.running,
    SeriesMetric.DELAYED: lambda sample, _: sample.delayed,
    SeriesMetric.OLDEST: lambda sample, _: sample.oldest_wait_ms / 1000,
}


def series_of(metric: SeriesMetric, samples: Sequence[QueueSample], step_s: int) -> list[Body]:
    """The lines of a metric: one, or one for each gate or key."""
    if metric is SeriesMetric.GATES:
        return _by_label(
            (
                f"{gate.kind} {gate.scope}",
                {"kind": gate.kind, "scope": gate.scope},
                sample.at_ms,
                _gate_point(gate),
            )
            for sample in samples
            for gate in sample.gates
        )
    if metric is SeriesMetric.SHARES:
        return _by_label(
            (
                f"{share.level} {share.key}",
                {"key": share.key, "priority": share.level},
                sample.at_ms,
                {"asked": share.asked, "got": share.got, "waiting": share.waiting},
            )
            for sample in samples
            for share in sample.keys
        )
    value = _SCALARS[metric]
    return [{"points": [[sample.at_ms, round(value(sample, step_s), 3)] for sample in samples]}]


def waits_of(waits: Sequence[KeyWaits]) -> list[Body]:
    """How long what started in the interval had waited: one row a key."""
    return [
        {
            "key": each.key,
            "started": each.count,
            "p50_seconds": round(quantile_ms(each.buckets, 0.5) / 1000, 3),
            "p99_seconds": round(quantile_ms(each.buckets, 0.99) / 1000, 3),
        }
        for each in waits
    ]


def _gate_point(gate: GateUse) -> Body:
    return {"used": gate.used, "max": gate.most, "closed": gate.is_closed}


def _by_label(points: Iterable[tuple[str, Body, int, Body]]) -> list[Body]:
    lines: dict[str, Body] = {}
    for label, subject, at_ms, value in points:
        lines.setdefault(label, subject | {"points": []})["points"].append([at_ms, value])
    return list(lines.values())
