"""The settings of a queue: who set which value and why, and the dispatch rules that follow from them.

A queue here is a task queue of one kind of task. `Policy` stores settings with author, time and reason; `rules` derives
from it what a claim needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.rate_reports import RateSource, WorkerRate, effective_rate
from penstock.core.limits.rates import BURST_DEFAULT_MS, Rate

REASON_MAX = 1_000
KEYS_WITH_SETTINGS_MAX = 100_000
KEYS_PER_CHANGE_MAX = 5_000
LEASE_CAP_MAX = 1_000_000
AGING_WAIT_MAX_MS = 7 * 24 * 3_600_000
RETRY_RATE_MIN_MICRO = 1_000
"""One in a thousand seconds, so that retry slots stay within 64-bit nanoseconds."""
AGING_EVERY_MIN = 2
AGING_EVERY_MAX = 1_000


class LimitSetting(StrEnum):
    """A setting of a queue or scope, by its public name."""

    QUEUE_RATE = "queue_rps_limit"
    QUEUE_BURST = "queue_rps_burst_seconds"
    KEY_RATE = "fairness_key_rps_limit_default"
    KEY_BURST = "fairness_key_rps_burst_seconds"
    FAIRNESS = "fairness"
    COUNTS = "fairness_counts"
    LEASE_CAP = "max_running"
    KEY_LEASE_CAP = "fairness_key_max_running_default"
    AGING_WAIT = "aging_wait_seconds"
    AGING_EVERY = "aging_every"
    DISPATCHES = "max_dispatches_per_minute"
    WINDOW = "dispatch_window"
    GROUP = "dispatch_budget_group"
    PAUSED = "paused"
    COST = "max_cost_per_minute"
    RETRY_RATE = "retry_rps_limit"
    OPEN_RUNS = "max_open_runs"
    SURPLUS = "surplus"
    CHANGE_APPROVALS = "change_approvals"


RATE_SETTINGS = frozenset(
    {
        LimitSetting.QUEUE_RATE,
        LimitSetting.QUEUE_BURST,
        LimitSetting.KEY_RATE,
        LimitSetting.KEY_BURST,
        LimitSetting.RETRY_RATE,
    }
)
"""Not for workflow tasks: a running workflow must be able to progress."""

AGING_SETTINGS = (LimitSetting.AGING_WAIT, LimitSetting.AGING_EVERY)
"""Set and unset together."""

RUN_SETTINGS = (LimitSetting.OPEN_RUNS, LimitSetting.SURPLUS)
"""Of caps on runs, see `run_caps`."""
QUEUE_SETTINGS = tuple(
    setting_name
    for setting_name in LimitSetting
    if setting_name not in (LimitSetting.COST, LimitSetting.CHANGE_APPROVALS, *RUN_SETTINGS)
)
SCOPE_SETTINGS = (
    LimitSetting.LEASE_CAP,
    LimitSetting.DISPATCHES,
    LimitSetting.COST,
    LimitSetting.WINDOW,
    LimitSetting.PAUSED,
)
EXPIRING_SETTINGS = frozenset(
    {
        LimitSetting.LEASE_CAP,
        LimitSetting.DISPATCHES,
        LimitSetting.COST,
        LimitSetting.PAUSED,
        *RUN_SETTINGS,
    }
)
"""Settings that may have an expiry: only the next grant, or the next start, depends on them."""
PAUSED = "on"
"""The value of a pause; resuming unsets it."""


class SettingValue(Struct, frozen=True):
    """A value with its author, time and reason. Rates are in millionths per second, times in milliseconds."""

    value: int | str
    author: str
    at_ms: int
    reason: str | None = None
    ends_at_ms: int | None = None
    """When it expires; None: never."""


class Policy(Struct, frozen=True):
    """All settings of one queue or scope."""

    version: int = 0
    """The number of changes; 0: no row."""
    settings: Mapping[LimitSetting, SettingValue] = field(default_factory=dict)
    overridden_keys: int = 0
    """The number of keys with a weight set by an operator."""
    limited_keys: int = 0
    """The number of keys with a rate, a lease cap or a pause of their own."""
    capped_keys: int = 0
    """The number of keys with a lease cap of their own."""

    @property
    def next_end_ms(self) -> int | None:
        """When the next setting expires."""
        ends = [each.ends_at_ms for each in self.settings.values() if each.ends_at_ms is not None]
        return min(ends, default=None)

    def at(self, now_ms: int) -> Policy:
        """The policy without settings that have expired."""
        ended = [
            setting_name
            for setting_name, each in self.settings.items()
            if each.ends_at_ms is not None and each.ends_at_ms <= now_ms
        ]
        if not ended:
            return self
        return replace(
            self,
            settings={
                setting_name: each
                for setting_name, each in self.settings.items()
                if setting_name not in ended
            },
        )

    def number(self, setting_name: LimitSetting) -> int | None:
        setting = self.settings.get(setting_name)
        return setting.value if setting is not None and isinstance(setting.value, int) else None

    def word(self, setting_name: LimitSetting) -> str | None:
        setting = self.settings.get(setting_name)
        return setting.value if setting is not None and isinstance(setting.value, str) else None


NO_POLICY = Policy()


class KeySettings(Struct, frozen=True):
    """The settings of one fairness key; None: the default of the queue."""

    key: str
    weight_milli: int | None = None
    rate_micro: int | None = None
    lease_cap: int | None = None
    paused: int = 0
    author: str | None = None
    at_ms: int | None = None
    reason: str | None = None

    @property
    def is_limited(self) -> bool:
        return self.rate_micro is not None or self.lease_cap is not None or bool(self.paused)

    @property
    def is_empty(self) -> bool:
        return self.weight_milli is None and not self.is_limited


class KeyState(Struct, frozen=True):
    """A fairness key of a queue: its settings, its rate debt and its running tasks."""

    key: str
    weight_milli: int | None = None
    rate_micro: int | None = None
    lease_cap: int | None = None
    paused: int = 0
    paid_until_ns: int = 0
    running: int = 0


class PolicyChange(Struct, frozen=True):
    """An entry of the change history."""

    version: int
    at_ms: int
    author: str
    setting: str
    key: str | None
    before: str | None
    after: str | None
    reason: str | None


class DispatchOrder(StrEnum):
    FAIR = "fair"
    ARRIVAL = "arrival"


class Aging(Struct, frozen=True):
    """While a task of a lower-priority level has waited this long, every n-th dispatch goes to such a level."""

    wait_ms: int
    every: int


class Rules(Struct, frozen=True, dict=True):
    """The rules of a queue for claims, derived from its policy."""

    order: DispatchOrder = DispatchOrder.FAIR
    queue_rate: Rate | None = None
    queue_rate_source: RateSource = RateSource.NONE
    key_rate: Rate | None = None
    key_burst_ms: int = BURST_DEFAULT_MS
    shares_by_running: bool = False
    """Whether a key's share is measured in running tasks instead of dispatches."""
    lease_cap: int | None = None
    key_lease_cap: int | None = None
    aging: Aging | None = None
    limits_keys: bool = False
    """Whether a key can be blocked: then every claim reads the rows of its keys."""
    counts_leases_by_key: bool = False
    """Whether running tasks are counted by key, so that the end of a lease may unblock others."""
    paused: bool = False
    retry_rate: Rate | None = None
    """The rate at which attempts after the first may become ready."""

    @cached_property
    def needs_keys(self) -> bool:
        """Whether claims need the rows of keys besides their lanes; lanes can then be throttled or blocked."""
        return self.limits_keys or self.shares_by_running

    @cached_property
    def announced(self) -> int:
        """Whom the end of a lease is announced to: 1 its key and the queue, 2 the queue alone, 0 neither."""
        if self.counts_leases_by_key:
            return 1
        return 0 if self.lease_cap is None else 2

    @property
    def of_keys(self) -> tuple[Rate | None, int, int | None, bool, bool]:
        """The rules that apply to all keys; a change makes throttled and blocked lanes dirty."""
        return (
            self.key_rate,
            self.key_burst_ms,
            self.key_lease_cap,
            self.limits_keys,
            self.shares_by_running,
        )

    def rate_of(self, state: KeyState, weight_milli: int) -> Rate | None:
        """A key's own rate, or the default scaled by its weight."""
        if state.rate_micro is not None:
            return Rate(state.rate_micro, self.key_burst_ms)
        return None if self.key_rate is None else self.key_rate.scaled(weight_milli)

    def lease_cap_of(self, state: KeyState) -> int | None:
        return self.key_lease_cap if state.lease_cap is None else state.lease_cap


PLAIN = Rules()
PLAIN_BY_ARRIVAL = Rules(DispatchOrder.ARRIVAL)


def rules(
    policy: Policy,
    *,
    fair_by_default: bool = True,
    worker_rate: WorkerRate | None = None,
    lease_cap: int | None = None,
    rate_max_micro: int | None = None,
) -> Rules:
    """Derive the rules. An operator's rate takes precedence over the workers', a queue's fairness over the namespace's.

    `lease_cap` is the declared cap, which an operator's takes precedence over; `rate_max_micro` bounds every rate.
    """
    fairness = policy.word(LimitSetting.FAIRNESS)
    fair = fair_by_default if fairness is None else fairness == "on"
    key_burst_ms = _or(policy.number(LimitSetting.KEY_BURST), BURST_DEFAULT_MS)
    key_rate_micro = policy.number(LimitSetting.KEY_RATE)
    key_rate = None if key_rate_micro is None else Rate(key_rate_micro, key_burst_ms)
    key_cap, own_cap = policy.number(LimitSetting.KEY_LEASE_CAP), policy.number(LimitSetting.LEASE_CAP)
    shares_by_running = policy.word(LimitSetting.COUNTS) == "running"
    queue_rate, source = _queue_rate(policy, worker_rate, rate_max_micro)
    return Rules(
        order=DispatchOrder.FAIR if fair else DispatchOrder.ARRIVAL,
        queue_rate=queue_rate,
        queue_rate_source=source,
        key_rate=key_rate,
        key_burst_ms=key_burst_ms,
        shares_by_running=shares_by_running,
        lease_cap=lease_cap if own_cap is None else own_cap,
        key_lease_cap=key_cap,
        aging=_aging(policy),
        limits_keys=policy.limited_keys > 0 or (key_rate, key_cap) != (None, None),
        counts_leases_by_key=shares_by_running
        or policy.capped_keys > 0
        or (key_cap, own_cap) != (None, None),
        paused=policy.word(LimitSetting.PAUSED) == PAUSED,
        retry_rate=_retry_rate(policy),
    )


def _queue_rate(
    policy: Policy, worker_rate: WorkerRate | None, rate_max_micro: int | None
) -> tuple[Rate | None, RateSource]:
    reported = None if worker_rate is None else worker_rate.micro
    micro, source = effective_rate(rate_max_micro, policy.number(LimitSetting.QUEUE_RATE), reported)
    worker_burst_ms = None if worker_rate is None else worker_rate.burst_ms
    burst_ms = _or(policy.number(LimitSetting.QUEUE_BURST), _or(worker_burst_ms, BURST_DEFAULT_MS))
    return None if micro is None else Rate(micro, burst_ms), source


def _retry_rate(policy: Policy) -> Rate | None:
    micro = policy.number(LimitSetting.RETRY_RATE)
    return None if micro is None else Rate(micro, burst_ms=0)


def _aging(policy: Policy) -> Aging | None:
    wait_ms, every = policy.number(LimitSetting.AGING_WAIT), policy.number(LimitSetting.AGING_EVERY)
    return None if wait_ms is None or every is None else Aging(wait_ms, every)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def changed(
    policy: Policy,
    values: Mapping[LimitSetting, SettingValue | None],
    keys: Sequence[tuple[KeySettings, KeySettings]],
) -> Policy:
    """The policy after a change; None unsets a setting. `keys` are the settings of keys before and after."""
    settings = {
        setting_name: setting
        for setting_name, setting in policy.settings.items()
        if setting_name not in values
    }
    settings |= {setting_name: setting for setting_name, setting in values.items() if setting is not None}
    overridden, limited, capped = policy.overridden_keys, policy.limited_keys, policy.capped_keys
    for before, after in keys:
        overridden += (after.weight_milli is not None) - (before.weight_milli is not None)
        limited += after.is_limited - before.is_limited
        capped += (after.lease_cap is not None) - (before.lease_cap is not None)
    return Policy(policy.version + 1, settings, overridden, limited, capped)
