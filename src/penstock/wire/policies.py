"""The settings of a line of tasks as operators read them: public units, with who set what, when and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from penstock.core.model import Queue
from penstock.core.policies import QUEUE_KNOBS, KeySettings, Knob, Order, Policy, PolicyChange, Setting
from penstock.core.timers import iso, iso_or_none
from penstock.wire.numbers import MICRO, MILLI
from penstock.wire.queue_rates import conveyed
from penstock.wire.rendering import Body

Shown = float | int | str | bool | None


def _rate(kept: int | str) -> float:
    return int(kept) / MICRO


def _milli(kept: int | str) -> float:
    return int(kept) / MILLI


def _same(kept: int | str) -> int | str:
    return kept


_UNITS: Final[Mapping[str, Callable[[int | str], Shown]]] = MappingProxyType(
    {
        Knob.QUEUE_RATE: _rate,
        Knob.QUEUE_BURST: _milli,
        Knob.KEY_RATE: _rate,
        Knob.KEY_BURST: _milli,
        Knob.FAIRNESS: _same,
        Knob.COUNTS: _same,
        Knob.RUNNING: int,
        Knob.KEY_RUNNING: int,
        Knob.AGING_WAIT: _milli,
        Knob.AGING_EVERY: int,
        Knob.DISPATCHES: int,
        Knob.WINDOW: _same,
        Knob.GROUP: _same,
        Knob.PAUSED: bool,
        Knob.COST: int,
        Knob.RETRY_RATE: _rate,
        "worker_rps_limit": _rate,
        "rps_limit": _rate,
        "fairness_weight_override": _milli,
    }
)
"""From what is kept, or stands in the log, to what is shown."""


def config(queue: Queue, keys: Sequence[KeySettings], key_count: int) -> Body:
    """All settings of a line, and what follows from them."""
    policy = queue.policy.at(queue.at_ms)
    body: Body = {
        "task_queue": queue.name,
        "task_queue_type": queue.kind.value,
        "namespace": queue.namespace,
        "version": policy.version,
    }
    body |= {knob.value: setting(knob, policy.settings.get(knob)) for knob in QUEUE_KNOBS}
    return body | {
        "effective": effective(queue),
        "worker_rps_limit": conveyed(queue.conveyed),
        "keys": [_key(each) for each in keys],
        "key_count": key_count,
    }


def effective(queue: Queue) -> Body:
    rate, own = queue.rules.queue_rate, queue.policy.word(Knob.FAIRNESS)
    return {
        "queue_rps_limit": None if rate is None else _rate(rate.micro),
        "queue_rps_limit_source": queue.rules.queue_rate_source.value,
        "fairness": is_fair(queue),
        "fairness_source": "namespace" if own is None else "queue",
    }


def is_fair(queue: Queue) -> bool:
    return queue.rules.order is Order.FAIR


def in_force(policy: Policy) -> Body:
    """The settings that somebody made."""
    return {
        knob.value: setting(knob, policy.settings[knob]) for knob in QUEUE_KNOBS if knob in policy.settings
    }


def setting(knob: Knob, made: Setting | None) -> Body | None:
    if made is None:
        return None
    return {
        "value": _UNITS[knob](made.value),
        "reason": made.reason,
        "updated_by": made.author,
        "updated_at": iso(made.at_ms),
        "ends_at": iso_or_none(made.ends_at_ms),
    }


def shown(knob: Knob, kept: int | str | None) -> Shown:
    """A value in public units; who is not told to pause does not."""
    return _logged(knob, None if kept is None else str(kept))


def _key(each: KeySettings) -> Body:
    return {
        "fairness_key": each.key,
        "weight_override": None if each.weight_milli is None else _milli(each.weight_milli),
        "rps_limit": None if each.rate_micro is None else _rate(each.rate_micro),
        "max_running": each.running_limit,
        "paused": bool(each.paused),
        "reason": each.reason,
        "updated_by": each.author,
        "updated_at": iso_or_none(each.at_ms),
    }


def change(each: PolicyChange) -> Body:
    """One line of the log."""
    return {
        "version": each.version,
        "at": iso(each.at_ms),
        "by": each.author,
        "reason": each.reason,
        "setting": each.setting,
        "fairness_key": each.key,
        "before": _logged(each.setting, each.before),
        "after": _logged(each.setting, each.after),
    }


def _logged(name: str, kept: str | None) -> Shown:
    if kept is None:
        return False if name == "paused" else None
    return _UNITS[name](kept)
