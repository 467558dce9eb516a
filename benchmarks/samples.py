"""The repetitions of one measurement, and what is said of them: median, least and most."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.work import Outcome


def spread(values: Iterable[float], digits: int = 1) -> dict[str, float]:
    """Median, least and most."""
    given = list(values)
    return {
        "median": round(statistics.median(given), digits),
        "min": round(min(given), digits),
        "max": round(max(given), digits),
    }


def rates(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Tasks (or requests) per second."""
    return spread(each.count / each.seconds for each in outcomes)


def cpu_ms(outcomes: list[Outcome]) -> dict[str, dict[str, float]]:
    """CPU milliseconds per task of each process that took part."""
    return {
        name: spread((each.cpu_seconds[name] * 1000 / each.count for each in outcomes), 3)
        for name in outcomes[0].cpu_seconds
    }


def latencies(outcomes: list[Outcome]) -> dict[str, dict[str, float]] | None:
    """Median and 99th percentile, each with its spread over the repetitions."""
    found = [each.latencies_ms for each in outcomes if each.latencies_ms is not None]
    if not found:
        return None
    return {"p50": spread(each[0] for each in found), "p99": spread(each[1] for each in found)}


def loads(values: Iterable[float]) -> dict[str, float]:
    """The machine's load average beside a figure."""
    return spread(values, 2)


def median(figure: Mapping[str, Any] | None) -> float | None:
    return None if figure is None else float(figure["median"])


def ratio(part: float | None, whole: float | None) -> float | None:
    """None where one side was not measured."""
    return round(part / whole, 3) if part is not None and whole else None
