"""Prefetch: tasks handed out before their worker has a free slot, on short leases that caps and rates do not count.

A worker that prefetches (`claim_lease_ms` on its polls) hides the round trip between two tasks. Limits are about what
runs, so a prefetched task is charged when it starts: its worker takes a permit then, by the same gates and under the
same locks as a grant (`engine.matching.permits`). Until then only these hold it:

* pauses, of the queue and of its scopes, because an operator who pauses expects that nothing moves;
* the limits of fairness keys, which bound what is handed out;
* the buffer that the worker registered, counted apart from its slots (`slots.py`): `worker-never-over-filled`.
"""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.limits.admission import ScopeRules
from penstock.core.limits.policies import LEASE_CAP_MAX, LimitSetting, SettingValue
from penstock.core.model import Queue


def without_limits(queue: Queue) -> Queue:
    """The queue as a prefetching poll sees it: its pauses and its keys, none of its caps, budgets and windows.

    The cap on active leases becomes the largest there is instead of none: with a cap, leases of keys are counted as
    they are for polls that start at once.
    """
    scopes = tuple(ScopeRules(each.name, paused=True) for each in queue.limits.scopes if each.paused)
    limits = replace(queue.limits, leases=None, dispatches=None, scopes=scopes)
    settings: dict[LimitSetting, SettingValue] = {
        name: replace(each, value=LEASE_CAP_MAX) if name is LimitSetting.LEASE_CAP else each
        for name, each in queue.policy.settings.items()
        if name is not LimitSetting.DISPATCHES
    }
    return replace(queue, limits=limits, policy=replace(queue.policy, settings=settings))
