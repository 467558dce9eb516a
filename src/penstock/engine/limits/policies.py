"""Settings of a line as an operator changes and reads them: versioned, logged, in force at the next claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.policies import (
    KEYS_PER_CHANGE_MAX,
    KEYS_WITH_SETTINGS_MAX,
    RATE_SETTINGS,
    KeySettings,
    LimitSetting,
    Policy,
    PolicyChange,
    SettingValue,
    changed,
)
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling.fairness import LaneState
from penstock.engine.context import EngineContext
from penstock.engine.limits.adoption import adopt
from penstock.engine.runs.history_writer import DUE_TOPIC
from penstock.errors import Conflict, InvalidInput, Reason, ValidationFailed
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.wakeups import queue_topic

KEYS_SHOWN = 1_000
CHANGES_KEPT = 200
"""Versions whose changes stay in the log."""


class Unset:
    """Says that a setting goes back to its default."""


UNSET = Unset()


class SettingChange(Struct, frozen=True):
    """A new value for a setting, or only a new reason (`value` None), or back to the default (`UNSET`)."""

    value: int | str | Unset | None
    reason: str | None = None
    ends_at_ms: int | None = None
    """When it stops to hold by itself."""


class KeySettingsChange(Struct, frozen=True):
    """What changes for one key; None leaves it as it is."""

    weight_milli: int | Unset | None = None
    rate_micro: int | Unset | None = None
    lease_cap: int | Unset | None = None
    paused: bool | None = None


class PolicyUpdate(Struct, frozen=True):
    """One change of a line's settings, made whole or not at all."""

    settings: Mapping[LimitSetting, SettingChange] = field(default_factory=dict)
    keys: Mapping[str, KeySettingsChange] = field(default_factory=dict)
    clear_weights: bool = False
    forget_worker_rate: bool = False
    reason: str | None = None
    if_version: int | None = None


class PolicyView(Struct, frozen=True):
    """A line's settings, with the first of its keys that have some."""

    queue: Queue
    keys: Sequence[KeySettings]
    key_count: int


async def read(ctx: EngineContext, namespace: str, name: str, kind: TaskKind) -> PolicyView:
    """The settings of a line; one that nobody used yet has none."""

    async def operation(tx: Tx) -> PolicyView:
        return await _view(tx, await line(tx, namespace, name, kind))

    return await ctx.store.read(operation)


async def line(tx: Tx, namespace: str, name: str, kind: TaskKind) -> Queue:
    """A line as it is; one that nobody used yet, as it would be."""
    for queue in await tx.queues.find(namespace, name):
        if queue.kind is kind:
            return queue
    found = await tx.namespaces.get(namespace)
    limits = (await tx.scopes.admission()).of(namespace, name, kind, Policy(), tx.now_ms)
    fair = 1 if found is None else found.fair
    return Queue(QueueId(0), namespace, name, kind, fair_by_default=fair, limits=limits, at_ms=tx.now_ms)


async def history(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, limit: int
) -> Sequence[PolicyChange]:
    async def operation(tx: Tx) -> Sequence[PolicyChange]:
        queue = await line(tx, namespace, name, kind)
        return await tx.policies.changes(queue.queue_id, limit)

    return await ctx.store.read(operation)


async def _view(tx: Tx, queue: Queue) -> PolicyView:
    keys = await tx.policies.keys_with_settings(queue.queue_id, KEYS_SHOWN)
    return PolicyView(queue, keys, await tx.policies.count_keys_with_settings(queue.queue_id))


async def configure(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, ask: PolicyUpdate, author: str
) -> PolicyView:
    """Change settings under the queue's lock: the next claim decides by the new ones, for the backlog too.

    A change that brings nothing new leaves version, authors and log as they are. When more weights are cleared
    than one change may touch, the rest of them go in further changes, so that nobody waits long for the lock.
    """
    await change(ctx, namespace, name, kind, ask, author)
    return await read(ctx, namespace, name, kind)


async def change(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, ask: PolicyUpdate, author: str
) -> None:
    """Like `configure`, without reading the settings afterwards."""
    if kind is TaskKind.WORKFLOW:
        _check_no_rates(ask)
    for step in await _steps(ctx, namespace, name, kind, ask):
        await _make(ctx, namespace, name, kind, step, author)


async def _make(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, ask: PolicyUpdate, author: str
) -> None:
    async def operation(tx: Tx) -> None:
        known = await tx.queues.ensure(namespace, name, kind)
        queue = await tx.queues.lock(known.queue_id)
        assert queue is not None, "a queue that was made is there"
        _check_version(queue.policy, ask.if_version)
        await _Change(tx, queue, ask, author).make()

    await ctx.store.transact(
        operation, key=f"policy:{namespace}:{name}:{kind}", tx_class=TransactionClass.CHANGE
    )


async def _steps(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, ask: PolicyUpdate
) -> Sequence[PolicyUpdate]:
    """The change with the weights that it clears by name: those that it gives anew are not among them."""
    if not ask.clear_weights:
        return [ask]

    async def operation(tx: Tx) -> Sequence[KeySettings]:
        queue = await line(tx, namespace, name, kind)
        return await tx.policies.keys_with_settings(queue.queue_id, KEYS_WITH_SETTINGS_MAX)

    kept = {key for key, each in ask.keys.items() if each.weight_milli is not None}
    every = await ctx.store.read(operation)
    cleared = [each.key for each in every if each.weight_milli is not None and each.key not in kept]
    steps = [
        {key: replace(ask.keys.get(key, KeySettingsChange()), weight_milli=UNSET) for key in part}
        for part in _parts(cleared, KEYS_PER_CHANGE_MAX)
    ]
    first, rest = (steps[0], steps[1:]) if steps else ({}, [])
    return [
        replace(ask, keys={**ask.keys, **first}),
        *(PolicyUpdate(keys=keys, reason=ask.reason) for keys in rest),
    ]


def _parts(keys: Sequence[str], most: int) -> list[Sequence[str]]:
    return [keys[start : start + most] for start in range(0, len(keys), most)]


def _check_no_rates(ask: PolicyUpdate) -> None:
    """A run that is under way must be able to go on, so workflow tasks have no rate."""
    named: list[str] = [setting_name for setting_name in ask.settings if setting_name in RATE_SETTINGS]
    named += [f"keys.{key}.rps_limit" for key, each in ask.keys.items() if each.rate_micro is not None]
    named += ["worker_rps_limit"] if ask.forget_worker_rate else []
    if named:
        errors = {field: ["is for activity tasks only"] for field in named}
        raise InvalidInput(
            Reason.RATE_LIMIT_NOT_FOR_WORKFLOW_TASKS,
            f"Workflow tasks have no rate limit, so {named[0]} cannot be set for them. Limit the activities of the "
            "queue (task_queue_type activity), or how many of its workflow tasks may run (max_running).",
            errors=errors,
            validation_errors=errors,
        )


def _check_version(policy: Policy, if_version: int | None) -> None:
    if if_version is not None and if_version != policy.version:
        raise Conflict(
            Reason.CONFIG_VERSION_CONFLICT,
            f"The settings are at version {policy.version}, not {if_version}. "
            "Read them again, then repeat the change.",
            current_version=policy.version,
        )


class _Change:
    """One change under way."""

    def __init__(self, tx: Tx, queue: Queue, ask: PolicyUpdate, author: str) -> None:
        self._tx = tx
        self._queue = queue
        self._ask = ask
        self._author = author
        self._log: list[PolicyChange] = []

    async def make(self) -> None:
        settings = self._settings()
        keys = await self._keys()
        policy = changed(self._queue.policy, settings, keys)
        await self._check_key_count(keys)
        _check_aging(policy)
        if self._ask.forget_worker_rate and self._queue.worker_rate is not None:
            self._note("worker_rps_limit", None, str(self._queue.worker_rate.micro), None, self._ask.reason)
            self._tx.policies.save_worker_rate(self._queue.queue_id, None)
        if not self._log:
            return
        limits = (await self._tx.scopes.admission()).of(
            self._queue.namespace, self._queue.name, self._queue.kind, policy, self._tx.now_ms
        )
        after_change = replace(self._queue, policy=policy, limits=limits)
        await self._join(after_change)
        await self._take_effect(after_change)
        self._tx.policies.save(self._queue.queue_id, policy)
        for before, after in keys:
            self._tx.policies.save_key(self._queue.queue_id, after)
            reweighted = before.weight_milli != after.weight_milli
            lane_state = LaneState.NEW if reweighted else _looked_at(after_change)
            self._tx.policies.touch_key(self._queue.queue_id, after.key, lane_state)
        self._tx.policies.log(self._queue.queue_id, self._log)
        if policy.version > CHANGES_KEPT:
            self._tx.policies.forget_changes(self._queue.queue_id, policy.version - CHANGES_KEPT)
        self._tx.wake(queue_topic(self._queue.queue_id))

    async def _join(self, after: Queue) -> None:
        """The scopes that the line belongs to from now on count what it leases already."""
        before = {rules.name for rules in self._queue.limits.scopes}
        joined = {rules.name: [after] for rules in after.limits.scopes if rules.name not in before}
        if joined:
            await adopt(self._tx, joined)

    async def _take_effect(self, after: Queue) -> None:
        """Bring what depends on the rules in line with the new ones."""
        queue_id, old, new = self._queue.queue_id, self._queue.rules, after.rules
        if new.counts_leases and not old.counts_leases:
            await self._tx.policies.count_leases(queue_id)
        if new.counts_running != old.counts_running:
            await self._tx.policies.rank_lanes(queue_id, by_running=new.counts_running)
        if new.retry_rate != old.retry_rate:
            await self._tx.retry_budgets.change(queue_id, new.retry_rate)
            self._tx.wake(DUE_TOPIC)
        if old.needs_keys and old.of_keys != new.of_keys:
            self._tx.policies.reset_lanes(queue_id, _looked_at(after))

    def _settings(self) -> dict[LimitSetting, SettingValue | None]:
        settings: dict[LimitSetting, SettingValue | None] = {}
        for setting_name, ask in self._ask.settings.items():
            before = self._queue.policy.settings.get(setting_name)
            reason = ask.reason or self._ask.reason
            after = self._setting(before, ask, reason)
            if _tells_the_same(before, after):
                continue
            settings[setting_name] = after
            self._note(setting_name, None, _value(before), _value(after), reason)
        return settings

    def _setting(
        self, before: SettingValue | None, ask: SettingChange, reason: str | None
    ) -> SettingValue | None:
        """A value brings its own reason or none; without a value, only the reason of the old one changes."""
        if isinstance(ask.value, Unset):
            return None
        if ask.value is not None:
            return SettingValue(ask.value, self._author, self._tx.now_ms, reason, ask.ends_at_ms)
        if before is None:
            return None
        return SettingValue(before.value, self._author, self._tx.now_ms, reason, before.ends_at_ms)

    async def _keys(self) -> list[tuple[KeySettings, KeySettings]]:
        """Each key that changes, before and after."""
        asks = self._ask.keys
        known = await self._tx.policies.key_settings(self._queue.queue_id, list(asks)) if asks else {}
        pairs = []
        for key, ask in asks.items():
            before = known.get(key, KeySettings(key))
            after = self._key(before, ask)
            if (after.weight_milli, after.rate_micro, after.lease_cap, after.paused) != (
                before.weight_milli,
                before.rate_micro,
                before.lease_cap,
                before.paused,
            ):
                self._note_key(before, after)
                pairs.append((before, after))
        return pairs

    def _key(self, before: KeySettings, ask: KeySettingsChange) -> KeySettings:
        return KeySettings(
            before.key,
            _asked(ask.weight_milli, before.weight_milli),
            _asked(ask.rate_micro, before.rate_micro),
            _asked(ask.lease_cap, before.lease_cap),
            before.paused if ask.paused is None else int(ask.paused),
            self._author,
            self._tx.now_ms,
            self._ask.reason,
        )

    async def _check_key_count(self, keys: Sequence[tuple[KeySettings, KeySettings]]) -> None:
        more = sum(before.is_empty - after.is_empty for before, after in keys)
        if more <= 0:
            return
        total = await self._tx.policies.count_keys_with_settings(self._queue.queue_id) + more
        if total > KEYS_WITH_SETTINGS_MAX:
            raise Conflict(
                Reason.TOO_MANY_FAIRNESS_KEYS,
                f"At most {KEYS_WITH_SETTINGS_MAX:,} keys of a queue can have settings of their own; "
                f"this change would make it {total:,}. Unset some that are no longer needed.",
                most=KEYS_WITH_SETTINGS_MAX,
            )

    def _note_key(self, before: KeySettings, after: KeySettings) -> None:
        for setting, old, new in (
            ("fairness_weight_override", before.weight_milli, after.weight_milli),
            ("rps_limit", before.rate_micro, after.rate_micro),
            ("max_running", before.lease_cap, after.lease_cap),
            ("paused", before.paused or None, after.paused or None),
        ):
            if old != new:
                self._note(setting, after.key, _text(old), _text(new), self._ask.reason)

    def _note(
        self, setting: str, key: str | None, before: str | None, after: str | None, reason: str | None
    ) -> None:
        version = self._queue.policy.version + 1
        self._log.append(
            PolicyChange(version, self._tx.now_ms, self._author, setting, key, before, after, reason)
        )


def _asked(asked: int | Unset | None, before: int | None) -> int | None:
    if isinstance(asked, Unset):
        return None
    return before if asked is None else asked


def _tells_the_same(one: SettingValue | None, other: SettingValue | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.value, one.reason, one.ends_at_ms) == (other.value, other.reason, other.ends_at_ms)


def _value(setting: SettingValue | None) -> str | None:
    return None if setting is None else str(setting.value)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _looked_at(queue: Queue) -> LaneState:
    """Where lanes stand that the next claim is to look at; where no claim looks at keys, all may go."""
    return LaneState.DIRTY if queue.rules.needs_keys else LaneState.READY


def _check_aging(policy: Policy) -> None:
    wait, every = policy.number(LimitSetting.AGING_WAIT), policy.number(LimitSetting.AGING_EVERY)
    if (wait is None) != (every is None):
        missing = LimitSetting.AGING_WAIT if wait is None else LimitSetting.AGING_EVERY
        raise ValidationFailed(
            {missing: ["Aging needs both: how long a task may wait, and how often an old one goes first."]}
        )
