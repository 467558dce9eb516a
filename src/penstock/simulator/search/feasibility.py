"""Targets that cannot be met whatever the knobs are turned to: known by flow balance, without a simulation.

The flow is taken with every knob far up, so what is left are the limits that may not be changed. A target is called
impossible only if the fluid bound misses it clearly; everything else is simulated.
"""

from __future__ import annotations

from penstock.simulator.balance import MINUTE_MS, FlowBalance
from penstock.simulator.comparison import wait_text
from penstock.simulator.measures import QueueName
from penstock.simulator.search.targets import SearchTarget
from penstock.simulator.workload import Workload

CLEARLY = 2.0
"""Waits of a fluid are means; only a target that they miss by this factor is called impossible."""


def impossible(
    target: SearchTarget, most_allowed: Workload, name: QueueName, time_factor: float
) -> str | None:
    """Why no value of the knobs is enough, or None where a simulation must tell.

    Args:
        target: what is to be met.
        most_allowed: the load with every knob far up.
        name: the queue.
        time_factor: by how much the load was shrunk in time.
    """
    balance = FlowBalance.of_workload(most_allowed)
    demand = balance.demand(name)
    resource, most = balance.binding(name)[0]
    if most == float("inf"):
        return None
    arriving = f"{demand.per_minute:,.4g} tasks arrive a minute"
    slack = most * max(1.0, demand.mean_ms / MINUTE_MS)
    if target.quantile is None:
        minutes = target.most_ms / time_factor / MINUTE_MS
        if demand.backlog + demand.per_minute * minutes <= most * minutes + slack:
            return None
        if demand.per_minute >= most:
            return f"{arriving}, and {resource} allow {most:,.4g}"
        needs_ms = demand.backlog / (most - demand.per_minute) * MINUTE_MS * time_factor
        return f"{resource} allow {most:,.4g} tasks a minute, with which it takes {wait_text(needs_ms)}"
    if target.key is not None or demand.per_minute <= most:
        return None
    minutes = most_allowed.duration_ms / MINUTE_MS
    left = demand.backlog + (demand.per_minute - most) * minutes * target.quantile - slack
    if most and left / most * MINUTE_MS <= CLEARLY * target.most_ms:
        return None
    return f"{arriving}, and {resource} allow {most:,.4g}"
