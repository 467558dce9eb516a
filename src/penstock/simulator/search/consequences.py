"""What a change that was found costs others, what binds next, and whether other seeds agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.simulator.balance import FlowBalance
from penstock.simulator.comparison import NOTICEABLE, Figure, SimulationResult, wait_text
from penstock.simulator.measures import Measures, QueueName
from penstock.simulator.search.targets import SearchTarget
from penstock.simulator.workload import Workload

SHOWN_MAX = 3
LEAST_MS = 10
"""A wait that grows by less is called the same."""


def agreement(target: SearchTarget, name: QueueName, runs: Sequence[Measures]) -> str:
    """How many replications meet the target with the change."""
    met = sum(target.figure(each, name) <= target.most_ms for each in runs)
    if len(runs) == 1:
        return ""
    if met == len(runs):
        return f"All {met} replications meet it."
    return f"Only {met} of {len(runs)} replications meet it: take a little more."


def cost(target: SearchTarget, result: SimulationResult) -> str:
    """Who waits noticeably longer with the change, apart from whom it is for."""
    losers = sorted(_longer(target, result), reverse=True)
    if not losers:
        return "Nobody waits noticeably longer."
    texts = [text for _, text in losers[:SHOWN_MAX]]
    more = f", and {len(losers) - SHOWN_MAX} more" if len(losers) > SHOWN_MAX else ""
    return f"It costs others: {'; '.join(texts)}{more}."


def _longer(target: SearchTarget, result: SimulationResult) -> Iterator[tuple[float, str]]:
    before = {(each.queue, each.kind): each for each in result.base}
    for after in result.changed:
        was = before.get((after.queue, after.kind))
        if was is None:
            continue
        for key, figures in after.keys.items():
            is_meant = after.queue == target.queue and target.key in (None, key)
            if key not in was.keys or is_meant:
                continue
            share = _rise(was.keys[key].waits.p95, figures.waits.p95)
            if share:
                whom = f"{key or 'tasks without a key'} in {after.queue}"
                yield share, f"{whom} waits {_percent(share)} longer ({_p95(figures.waits.p95)})"


def _rise(before: Figure, after: Figure) -> float:
    """The share by which a wait grows; 0 if nobody would notice."""
    grown = after.median - before.median
    if grown < LEAST_MS or grown <= NOTICEABLE * after.median:
        return 0.0
    return grown / before.median if before.median else float("inf")


def _percent(share: float) -> str:
    return "much" if share > 10 else f"{share * 100:.0f} %"


def _p95(figure: Figure) -> str:
    return f"p95 {wait_text(figure.median)}"


def next_limit(workload: Workload, name: QueueName) -> str:
    """What binds the queue once the change is made.

    Args:
        workload: the load with the change.
        name: the queue.
    """
    balance = FlowBalance.of_workload(workload)
    binding = [each for each in balance.binding(name) if each[1] < float("inf")]
    if not binding:
        return ""
    resource, most = binding[0]
    arriving = balance.demand(name).per_minute
    used = f", {arriving / most * 100:.0f} % used by what arrives" if most and arriving else ""
    return f"Next limit: {resource}{used}."
