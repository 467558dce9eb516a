"""A queue's settings as operators read and change them: versioned, logged, effective at the next claim.

A change runs under the queue's row lock, which every claim takes: so each claim decides by the settings before or
after the change, never by a mix, and the new settings apply to the existing backlog. The queue's derived state (lane
states, lease counts, retry budget) is adjusted in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.admission import Admission, queue_scope
from penstock.core.limits.change_approvals import approvals_wanted, needs_approval
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
from penstock.core.operations import journal_lines
from penstock.core.scheduling.fairness import LaneState
from penstock.engine.context import EngineContext
from penstock.engine.limits.adoption import adopt
from penstock.engine.runs.history_writer import DUE_TOPIC
from penstock.errors import Conflict, InvalidInput, Reason, ValidationFailed
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.wakeups import queue_topic

KEYS_SHOWN = 1_000
CHANGES_KEPT = 200
"""How many versions the change log keeps."""


AGING_NEEDS_BOTH = "Aging needs both: how long a task may wait, and how often an aged task goes first."


class Unset:
    """Marks a setting that returns to its default."""


UNSET = Unset()


class SettingChange(Struct, frozen=True):
    """A new value of a setting, only a new reason (`value` None), or a return to the default (`UNSET`)."""

    value: int | str | Unset | None
    reason: str | None = None
    ends_at_ms: int | None = None
    """When the value expires by itself."""


class KeySettingsChange(Struct, frozen=True):
    """Changes to the settings of one fairness key; None leaves a setting as it is."""

    weight_milli: int | Unset | None = None
    rate_micro: int | Unset | None = None
    lease_cap: int | Unset | None = None
    paused: bool | None = None


class PolicyUpdate(Struct, frozen=True):
    """An atomic change of a queue's settings."""

    settings: Mapping[LimitSetting, SettingChange] = field(default_factory=dict)
    keys: Mapping[str, KeySettingsChange] = field(default_factory=dict)
    clear_weights: bool = False
    forget_worker_rate: bool = False
    reason: str | None = None
    if_version: int | None = None


class PolicyView(Struct, frozen=True):
    """A queue's settings, with up to `KEYS_SHOWN` keys that have settings of their own."""

    queue: Queue
    keys: Sequence[KeySettings]
    key_count: int


async def read(ctx: EngineContext, namespace: str, name: str, kind: TaskKind) -> PolicyView:
    """The settings of a queue; a queue that was never used has the defaults."""

    async def operation(tx: Tx) -> PolicyView:
        return await _view(tx, await find_queue(tx, namespace, name, kind))

    return await ctx.store.read(operation)


async def find_queue(tx: Tx, namespace: str, name: str, kind: TaskKind) -> Queue:
    """The queue's row, or for a queue that was never used the row it would get."""
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
    """The change log of a queue's settings, newest first."""

    async def operation(tx: Tx) -> Sequence[PolicyChange]:
        queue = await find_queue(tx, namespace, name, kind)
        return await tx.policies.changes(queue.queue_id, limit)

    return await ctx.store.read(operation)


async def _view(tx: Tx, queue: Queue) -> PolicyView:
    keys = await tx.policies.keys_with_settings(queue.queue_id, KEYS_SHOWN)
    return PolicyView(queue, keys, await tx.policies.count_keys_with_settings(queue.queue_id))


async def configure(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, update: PolicyUpdate, author: str
) -> PolicyView:
    """Change settings under the queue's lock.

    A change without effect leaves version, authors and log as they are. Clearing more weights than one transaction
    may touch is split into several, so that claims do not wait long for the lock.
    """
    await change(ctx, namespace, name, kind, update, author)
    return await read(ctx, namespace, name, kind)


async def change(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, update: PolicyUpdate, author: str
) -> None:
    """Like `configure`, without reading the settings afterwards."""
    check_kind(kind, update)
    for step in await _batches(ctx, namespace, name, kind, update):
        await _apply(ctx, namespace, name, kind, step, author)


async def _apply(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, update: PolicyUpdate, author: str
) -> None:
    async def operation(tx: Tx) -> None:
        known = await tx.queues.ensure(namespace, name, kind)
        queue = await tx.queues.lock(known.queue_id)
        assert queue is not None, "ensure created the queue"
        _check_version(queue.policy, update.if_version)
        limits = await tx.scopes.admission()
        change = QueueChange(ctx, tx, queue, update, author, limits)
        await change.make()
        check_direct(change.log, queue_scope(namespace, name, kind), limits, tx.now_ms)
        if change.joined:
            await adopt(tx, {name: [change.after] for name in change.joined})

    await ctx.store.transact(
        operation, key=f"policy:{namespace}:{name}:{kind}", tx_class=TransactionClass.CHANGE
    )


async def _batches(
    ctx: EngineContext, namespace: str, name: str, kind: TaskKind, update: PolicyUpdate
) -> Sequence[PolicyUpdate]:
    """Split an update that clears all weights into transactions of bounded size. Weights it sets are not cleared."""
    if not update.clear_weights:
        return [update]

    async def operation(tx: Tx) -> Sequence[str]:
        queue = await find_queue(tx, namespace, name, kind)
        found = await tx.policies.keys_with_settings(queue.queue_id, KEYS_WITH_SETTINGS_MAX)
        return [each.key for each in found if each.weight_milli is not None]

    kept = {key for key, each in update.keys.items() if each.weight_milli is not None}
    cleared = [key for key in await ctx.store.read(operation) if key not in kept]
    steps = [
        {key: replace(update.keys.get(key, KeySettingsChange()), weight_milli=UNSET) for key in part}
        for part in _parts(cleared, KEYS_PER_CHANGE_MAX)
    ]
    first, rest = (steps[0], steps[1:]) if steps else ({}, [])
    return [
        replace(update, keys={**update.keys, **first}),
        *(PolicyUpdate(keys=keys, reason=update.reason) for keys in rest),
    ]


def _parts(keys: Sequence[str], most: int) -> list[Sequence[str]]:
    return [keys[start : start + most] for start in range(0, len(keys), most)]


def check_kind(kind: TaskKind, update: PolicyUpdate) -> None:
    """Reject rates for workflow tasks: a run in progress must be able to continue."""
    if kind is not TaskKind.WORKFLOW:
        return
    named: list[str] = [setting_name for setting_name in update.settings if setting_name in RATE_SETTINGS]
    named += [f"keys.{key}.rps_limit" for key, each in update.keys.items() if each.rate_micro is not None]
    named += ["worker_rps_limit"] if update.forget_worker_rate else []
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


def check_direct(log: Sequence[PolicyChange], scope: str, limits: Admission, now_ms: int) -> None:
    """Raise `Conflict` if a direct change of a scope is one that approvals are wanted for."""
    wanted = approvals_wanted([scope], limits, now_ms)
    if wanted and needs_approval(log):
        raise Conflict(
            Reason.CHANGE_NEEDS_APPROVAL,
            f"Changes of these limits need the approval of {wanted} other {'person' if wanted == 1 else 'people'}. "
            "Propose a change set, as with `penstock change new`, and have it approved. Pausing and resuming are free.",
            wanted=wanted,
            missing=wanted,
        )


class QueueChange:
    """A change of one queue in progress: collects the effective differences and their log entries, then writes them.

    The caller has newly applicable scopes count the queue's leases: `adopt`, once for all queues of a transaction.
    """

    def __init__(
        self,
        ctx: EngineContext,
        tx: Tx,
        queue: Queue,
        update: PolicyUpdate,
        author: str,
        admission: Admission,
    ) -> None:
        self._journals = ctx.store.journals
        self._tx = tx
        self._queue = queue
        self._update = update
        self._author = author
        self._admission = admission
        self.log: list[PolicyChange] = []
        """The entries of the change log."""
        self.after = queue
        """The queue after the change."""

    @property
    def joined(self) -> Sequence[str]:
        """The scopes that limit the queue since the change; they do not count its existing leases yet."""
        before = {rules.name for rules in self._queue.limits.scopes}
        return [rules.name for rules in self.after.limits.scopes if rules.name not in before]

    async def make(self) -> None:
        """Write the change."""
        settings = self._settings()
        keys = await self._keys()
        policy = changed(self._queue.policy, settings, keys)
        await self._check_key_count(keys)
        _check_aging(policy)
        if self._update.forget_worker_rate and self._queue.worker_rate is not None:
            self._note(
                "worker_rps_limit", None, str(self._queue.worker_rate.micro), None, self._update.reason
            )
            self._tx.policies.save_worker_rate(self._queue.queue_id, None)
        if not self.log:
            return
        limits = self._admission.of(
            self._queue.namespace, self._queue.name, self._queue.kind, policy, self._tx.now_ms
        )
        after_change = replace(self._queue, policy=policy, limits=limits)
        self.after = after_change
        await self._take_effect(after_change)
        self._tx.policies.save(self._queue.queue_id, policy)
        for before, after in keys:
            self._tx.policies.save_key(self._queue.queue_id, after)
            reweighted = before.weight_milli != after.weight_milli
            lane_state = LaneState.NEW if reweighted else _lane_state(after_change)
            self._tx.policies.touch_key(self._queue.queue_id, after.key, lane_state)
        self._tx.policies.log(self._queue.queue_id, self.log)
        if self._journals:
            scope = queue_scope(self._queue.namespace, self._queue.name, self._queue.kind)
            self._tx.journal.append(journal_lines.settings(scope, self.log, self._tx.now_ms))
        if policy.version > CHANGES_KEPT:
            self._tx.policies.forget_changes(self._queue.queue_id, policy.version - CHANGES_KEPT)
        self._tx.wake(queue_topic(self._queue.queue_id))

    async def _take_effect(self, after: Queue) -> None:
        """Adjust the state derived from the rules that change."""
        queue_id, old, new = self._queue.queue_id, self._queue.rules, after.rules
        if new.counts_leases_by_key and not old.counts_leases_by_key:
            await self._tx.policies.count_leases(queue_id)
        if new.shares_by_running != old.shares_by_running:
            await self._tx.policies.rank_lanes(queue_id, by_running=new.shares_by_running)
        if new.retry_rate != old.retry_rate:
            await self._tx.retry_budgets.change(queue_id, new.retry_rate)
            self._tx.wake(DUE_TOPIC)
        if old.needs_keys and old.of_keys != new.of_keys:
            self._tx.policies.reset_lanes(queue_id, _lane_state(after))

    def _settings(self) -> dict[LimitSetting, SettingValue | None]:
        settings: dict[LimitSetting, SettingValue | None] = {}
        for setting_name, update in self._update.settings.items():
            before = self._queue.policy.settings.get(setting_name)
            reason = update.reason or self._update.reason
            after = self._setting(before, update, reason)
            if _is_same(before, after):
                continue
            settings[setting_name] = after
            self._note(setting_name, None, _value(before), _value(after), reason)
        return settings

    def _setting(
        self, before: SettingValue | None, update: SettingChange, reason: str | None
    ) -> SettingValue | None:
        """The setting after the update. A value replaces the reason too; without a value only the reason changes."""
        if isinstance(update.value, Unset):
            return None
        if update.value is not None:
            return SettingValue(update.value, self._author, self._tx.now_ms, reason, update.ends_at_ms)
        if before is None:
            return None
        return SettingValue(before.value, self._author, self._tx.now_ms, reason, before.ends_at_ms)

    async def _keys(self) -> list[tuple[KeySettings, KeySettings]]:
        """The settings of each key that changes, before and after."""
        asks = self._update.keys
        known = await self._tx.policies.key_settings(self._queue.queue_id, list(asks)) if asks else {}
        pairs = []
        for key, update in asks.items():
            before = known.get(key, KeySettings(key))
            after = self._key(before, update)
            if (after.weight_milli, after.rate_micro, after.lease_cap, after.paused) != (
                before.weight_milli,
                before.rate_micro,
                before.lease_cap,
                before.paused,
            ):
                self._note_key(before, after)
                pairs.append((before, after))
        return pairs

    def _key(self, before: KeySettings, update: KeySettingsChange) -> KeySettings:
        return KeySettings(
            before.key,
            _new_value(update.weight_milli, before.weight_milli),
            _new_value(update.rate_micro, before.rate_micro),
            _new_value(update.lease_cap, before.lease_cap),
            before.paused if update.paused is None else int(update.paused),
            self._author,
            self._tx.now_ms,
            self._update.reason,
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
                self._note(setting, after.key, _text(old), _text(new), self._update.reason)

    def _note(
        self, setting: str, key: str | None, before: str | None, after: str | None, reason: str | None
    ) -> None:
        version = self._queue.policy.version + 1
        self.log.append(
            PolicyChange(version, self._tx.now_ms, self._author, setting, key, before, after, reason)
        )


def _new_value(asked: int | Unset | None, before: int | None) -> int | None:
    if isinstance(asked, Unset):
        return None
    return before if asked is None else asked


def _is_same(one: SettingValue | None, other: SettingValue | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.value, one.reason, one.ends_at_ms) == (other.value, other.reason, other.ends_at_ms)


def _value(setting: SettingValue | None) -> str | None:
    return None if setting is None else str(setting.value)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _lane_state(queue: Queue) -> LaneState:
    """The state of lanes that the next claim must evaluate; without per-key rules every lane is ready."""
    return LaneState.DIRTY if queue.rules.needs_keys else LaneState.READY


def _check_aging(policy: Policy) -> None:
    wait, every = policy.number(LimitSetting.AGING_WAIT), policy.number(LimitSetting.AGING_EVERY)
    if (wait is None) != (every is None):
        missing = LimitSetting.AGING_WAIT if wait is None else LimitSetting.AGING_EVERY
        raise ValidationFailed({missing: [AGING_NEEDS_BOTH]})
