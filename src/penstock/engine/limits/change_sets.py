"""Change sets: propose, apply, withdraw, roll back and expire several settings of limits as one.

An apply locks the change set, the admission row and every queue concerned, compares each setting with what the author
saw, and writes all of them and the change set in that transaction: so either all settings are in force from the next
grant on, or none. The rules are in `core.limits.change_sets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from penstock.core.limits.admission import Admission, namespace_of, queue_of_scope
from penstock.core.limits.change_sets import (
    ITEMS_MAX,
    ChangeItem,
    ChangeSet,
    ChangeSetState,
    Current,
    CurrentValue,
    ItemTarget,
    KeySetting,
    MovedItem,
    Stored,
    applied,
    as_found,
    draft,
    ended,
    expiring,
    inverse,
    is_half_of_aging,
    left_alone,
    moved,
    setting_of,
    setting_of_key,
    taken_over,
    undoing,
)
from penstock.core.limits.policies import AGING_SETTINGS, LimitSetting, Policy
from penstock.core.model import Queue, TaskKind
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.engine.limits.admission import ScopeChange, ScopeUpdate
from penstock.engine.limits.adoption import adopt
from penstock.engine.limits.policies import (
    AGING_NEEDS_BOTH,
    UNSET,
    KeySettingsChange,
    PolicyUpdate,
    QueueChange,
    SettingChange,
    Unset,
    check_kind,
    find_queue,
)
from penstock.errors import Conflict, NotFound, Reason, ValidationFailed
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.tables.visibility import PageStart


class ChangeSetRequest(Struct, frozen=True):
    """What a new change set is to do."""

    asked: Mapping[ItemTarget, Stored]
    """The settings, with their new values; None unsets."""
    reason: str
    apply_at_ms: int | None = None
    """When the server applies it; None: when somebody does."""
    lasts_ms: int | None = None
    """How long it stays in force; None: until somebody changes it."""


class ChangeSetView(Struct, frozen=True):
    """A change set, and what its settings have now."""

    change_set: ChangeSet
    current: Current

    @property
    def moved(self) -> Sequence[MovedItem]:
        """What is in the way: of an apply, or of what an expiry or a rollback would take back."""
        items = self.change_set.items
        match self.change_set.state:
            case ChangeSetState.PROPOSED | ChangeSetState.SCHEDULED:
                return moved(items, self.current)
            case ChangeSetState.APPLIED:
                return taken_over(items, self.current)
            case _:
                return self.change_set.moved


async def propose(
    ctx: EngineContext, namespace: str, request: ChangeSetRequest, author: str
) -> ChangeSetView:
    """Record a change set, with the values that its settings have now."""

    async def operation(tx: Tx) -> ChangeSetView:
        current = await _current(tx, request.asked)
        items = draft(request.asked, current)
        await _check_aging(tx, request.asked)
        return _create(ctx, tx, namespace, request, author, items, current)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def roll_back(
    ctx: EngineContext, namespace: str, change_set_id: str, reason: str, author: str
) -> ChangeSetView:
    """Propose the inverse of an applied change set. It is applied by the rules for every change set."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await _require(tx, namespace, change_set_id)
        if found.state is not ChangeSetState.APPLIED:
            raise _wrong_state(found, "rolled back", "Only one that is applied can be rolled back.")
        items = inverse(found.items)
        current = await _current(tx, [each.target for each in items])
        asked = {each.target: each.after for each in items}
        request = ChangeSetRequest(asked, reason)
        return _create(ctx, tx, namespace, request, author, items, current, undoes=change_set_id)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def get(ctx: EngineContext, namespace: str, change_set_id: str) -> ChangeSetView:
    """A change set with the present values of its settings."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await _require(tx, namespace, change_set_id)
        return ChangeSetView(found, await _current(tx, [each.target for each in found.items]))

    return await ctx.store.read(operation)


async def page(
    ctx: EngineContext, namespace: str, state: ChangeSetState | None, before: PageStart | None, limit: int
) -> Sequence[ChangeSet]:
    """The change sets of a namespace, newest first."""
    return await ctx.store.read(lambda tx: tx.change_sets.page(namespace, state, before, limit))


async def apply(ctx: EngineContext, namespace: str, change_set_id: str, author: str) -> ChangeSetView:
    """Apply a change set. One that is stale is returned as it was, with what moved, and nothing is changed."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await _lock(tx, namespace, change_set_id)
        if not found.may_be_applied:
            raise _wrong_state(found, "applied", "Propose a new one.")
        await _move_expiries(tx, found)
        change = _Application(ctx, tx, found.items)
        await change.lock()
        if moved(found.items, change.current):
            raise _StaleItems(ChangeSetView(found, change.current))
        done = await change.apply(found, author)
        return ChangeSetView(
            done, {each.target: CurrentValue(each.after, author, tx.now_ms) for each in done.items}
        )

    try:
        return await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)
    except _StaleItems as stale:
        return stale.view


async def withdraw(ctx: EngineContext, namespace: str, change_set_id: str, author: str) -> ChangeSetView:
    """Give up a change set that is not applied."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await _lock(tx, namespace, change_set_id)
        if not found.may_be_applied:
            raise _wrong_state(found, "withdrawn", "Roll back one that is applied.")
        done = ended(found, ChangeSetState.WITHDRAWN, author, tx.now_ms)
        tx.change_sets.save(done)
        return ChangeSetView(done, await _current(tx, [each.target for each in found.items]))

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def act_when_due(ctx: EngineContext, change_set_id: str) -> bool:
    """Apply a scheduled change set, or end one whose time is over; False if another server was faster."""

    async def operation(tx: Tx) -> bool:
        found = await tx.change_sets.lock(change_set_id)
        if found is None or found.due_at_ms is None or found.due_at_ms > tx.now_ms:
            return False
        if found.state is ChangeSetState.SCHEDULED:
            await _apply_scheduled(ctx, tx, found)
        else:
            await _expire(ctx, tx, found)
        return True

    return await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)


async def _apply_scheduled(ctx: EngineContext, tx: Tx, found: ChangeSet) -> None:
    change = _Application(ctx, tx, found.items)
    await change.lock()
    in_the_way = moved(found.items, change.current)
    if in_the_way:
        tx.change_sets.save(ended(found, ChangeSetState.REFUSED, None, tx.now_ms, in_the_way))
        return
    await change.apply(found, found.author)


async def _expire(ctx: EngineContext, tx: Tx, found: ChangeSet) -> None:
    items = inverse(found.items)
    change = _Application(ctx, tx, items)
    await change.lock()
    left = left_alone(found, change.current)
    change.items = as_found(undoing(found, change.current), change.current, tx.now_ms)
    await change.write(found.author, f"{found.change_set_id} expired")
    tx.change_sets.save(ended(found, ChangeSetState.EXPIRED, None, tx.now_ms, left))


class _StaleItems(Exception):
    """Ends the transaction of an apply without a trace, also of queues that it created."""

    def __init__(self, view: ChangeSetView) -> None:
        super().__init__("stale")
        self.view = view


class _Application:
    """Writes items in one transaction: first `lock`, then a decision by `current`, then `write`."""

    def __init__(self, ctx: EngineContext, tx: Tx, items: Sequence[ChangeItem]) -> None:
        self._ctx = ctx
        self._tx = tx
        self.items = items
        self.current: Current = {}
        self._admission = Admission()
        self._queues: dict[str, Queue] = {}
        """The locked queues that have items, by scope."""
        self._others: Sequence[Queue] = ()
        """The other queues that changed scopes limit, locked."""

    async def lock(self) -> None:
        """Lock the limits and all queues concerned, in the common order, and read the present values."""
        tx = self._tx
        self._admission = await tx.scopes.lock_admission()
        named = {scope: await tx.queues.ensure(*queue) for scope, queue in _queues_of(self.items).items()}
        shared = {each.target.scope for each in self.items} - named.keys()
        locked = {queue.queue_id: queue for queue in await self._locked(shared, list(named.values()))}
        self._queues = {scope: locked.pop(queue.queue_id) for scope, queue in named.items()}
        self._others = list(locked.values())
        self.current = await _values(tx, [each.target for each in self.items], self._queues, self._admission)

    async def _locked(self, shared: set[str], named: Sequence[Queue]) -> Sequence[Queue]:
        """Lock the named queues, and every queue that a shared scope limits."""
        if not shared:
            ids = sorted(queue.queue_id for queue in named)
            found = [await self._tx.queues.lock(queue_id) for queue_id in ids]
            return [queue for queue in found if queue is not None]
        namespaces = {namespace_of(scope) for scope in shared}
        return await self._tx.scopes.lock_queues(namespaces.pop() if len(namespaces) == 1 else None)

    async def apply(self, found: ChangeSet, author: str) -> ChangeSet:
        """Write all items of a change set that is not stale, and the change set as applied."""
        now_ms = self._tx.now_ms
        self.items = items = as_found(found.items, self.current, now_ms)
        await self.write(author, _log_reason(found))
        done = applied(found, items, author, now_ms)
        self._tx.change_sets.save(done)
        return done

    async def write(self, author: str, reason: str) -> None:
        """Write all items, with log entries, and have them take effect at the next grant."""
        tx, before = self._tx, self._admission
        changes = self._scope_changes(author, reason)
        after = await admission.save_scopes(self._ctx, tx, before, changes) if changes else before
        queues = []
        joined: dict[str, list[Queue]] = {}
        for scope, items in _by_scope(self.items).items():
            if scope in self._queues:
                update = _policy_update(items, reason)
                change = QueueChange(self._ctx, tx, self._queues[scope], update, author, after)
                await change.make()
                queues.append(change.after)
                for name in change.joined:
                    joined.setdefault(name, []).append(change.after)
        if changes:
            await admission.take_effect(self._ctx, tx, [*queues, *self._others], after)
        elif joined:
            await adopt(tx, joined)

    def _scope_changes(self, author: str, reason: str) -> Sequence[ScopeChange]:
        """The changes of scopes other than queues that have an effect."""
        found = [
            admission.scope_change(
                self._admission, scope, _scope_update(items, reason), author, self._tx.now_ms
            )
            for scope, items in _by_scope(self.items).items()
            if scope not in self._queues
        ]
        return [change for change in found if change is not None]


def _create(
    ctx: EngineContext,
    tx: Tx,
    namespace: str,
    request: ChangeSetRequest,
    author: str,
    items: tuple[ChangeItem, ...],
    current: Current,
    undoes: str | None = None,
) -> ChangeSetView:
    if not items:
        raise ValidationFailed(
            {"changes": ["change nothing: every setting has the value already. Name what is to change"]}
        )
    if len(items) > ITEMS_MAX:
        raise ValidationFailed(
            {"changes": [f"are {len(items):,} settings; at most {ITEMS_MAX} in one change set"]}
        )
    for scope, each in _by_scope(items).items():
        queue = queue_of_scope(scope)
        if queue is not None:
            check_kind(TaskKind(queue[2]), _policy_update(each, None))
    if request.apply_at_ms is not None and request.apply_at_ms <= tx.now_ms:
        raise ValidationFailed(
            {"apply_at": ["is over already. Leave it out to apply the change set yourself"]}
        )
    change_set = ChangeSet(
        change_set_id=ctx.entropy.new_id(),
        namespace=namespace,
        state=ChangeSetState.PROPOSED if request.apply_at_ms is None else ChangeSetState.SCHEDULED,
        reason=request.reason,
        author=author,
        created_at_ms=tx.now_ms,
        items=items,
        due_at_ms=request.apply_at_ms,
        lasts_ms=request.lasts_ms,
        undoes=undoes,
    )
    tx.change_sets.create(change_set)
    return ChangeSetView(change_set, current)


async def _check_aging(tx: Tx, asked: Mapping[ItemTarget, Stored]) -> None:
    """Refuse what no apply could write: one half of a queue's aging without the other."""
    halves = [each for each in asked if each.key is None and each.setting in AGING_SETTINGS]
    pairs = {ItemTarget(each.scope, setting_name) for each in halves for setting_name in AGING_SETTINGS}
    current = await _current(tx, pairs)
    half = next((each for each in halves if is_half_of_aging(each, asked, current)), None)
    if half is not None:
        raise ValidationFailed({half.setting: [AGING_NEEDS_BOTH]})


async def _move_expiries(tx: Tx, rollback: ChangeSet) -> None:
    """Take the expiry from what a rollback rolls back; one that a rollback had taken it from has it again.

    Locks from the newest to the oldest, and before all limits, as every transaction does.
    """
    undone, in_force = rollback.undoes, False
    while undone is not None:
        older = await tx.change_sets.lock(undone)
        assert older is not None, "change sets are never deleted while their namespace exists"
        after = expiring(older, in_force=in_force)
        if after != older:
            tx.change_sets.save(after)
        undone, in_force = older.undoes, not in_force


async def _lock(tx: Tx, namespace: str, change_set_id: str) -> ChangeSet:
    await _require(tx, namespace, change_set_id)
    found = await tx.change_sets.lock(change_set_id)
    assert found is not None, "change sets are never deleted while their namespace exists"
    return found


async def _require(tx: Tx, namespace: str, change_set_id: str) -> ChangeSet:
    found = await tx.change_sets.get(namespace, change_set_id)
    if found is None:
        raise NotFound(
            Reason.CHANGE_SET_NOT_FOUND,
            f"There is no change set {change_set_id!r} in namespace {namespace!r}. List those there are.",
        )
    return found


def _wrong_state(found: ChangeSet, verb: str, advice: str) -> Conflict:
    return Conflict(
        Reason.CHANGE_SET_STATE_CONFLICT,
        f"The change set is {found.state.value}, so it cannot be {verb}. {advice}",
        state=found.state.value,
    )


def _log_reason(found: ChangeSet) -> str:
    return f"{found.reason} (change set {found.change_set_id})"


async def _current(tx: Tx, targets: Iterable[ItemTarget]) -> Current:
    """The present values of settings, without locks."""
    targets = list(targets)
    queues = {
        scope: await find_queue(tx, *queue)
        for scope, queue in _queues_of([ChangeItem(each, None, None) for each in targets]).items()
    }
    return await _values(tx, targets, queues, await tx.scopes.admission())


async def _values(
    tx: Tx, targets: Sequence[ItemTarget], queues: Mapping[str, Queue], limits: Admission
) -> Current:
    """The values of settings; those that expired are unset."""
    keys: dict[str, list[str]] = {}
    for target in targets:
        if target.key is not None:
            keys.setdefault(target.scope, []).append(target.key)
    of_keys = {
        scope: await tx.policies.key_settings(queues[scope].queue_id, sorted(set(names)))
        for scope, names in keys.items()
    }
    found = {}
    for target in targets:
        if target.key is not None:
            settings = of_keys[target.scope].get(target.key)
            found[target] = setting_of_key(settings, KeySetting(target.setting))
            continue
        queue, row = queues.get(target.scope), limits.row(target.scope)
        policy = queue.policy if queue is not None else Policy() if row is None else row.policy
        found[target] = setting_of(policy.at(tx.now_ms), LimitSetting(target.setting))
    return found


def _queues_of(items: Sequence[ChangeItem]) -> dict[str, tuple[str, str, TaskKind]]:
    """The queues among the scopes of items, in order of their scopes."""
    found = {}
    for scope in sorted({each.target.scope for each in items}):
        queue = queue_of_scope(scope)
        if queue is not None:
            found[scope] = (queue[0], queue[1], TaskKind(queue[2]))
    return found


def _by_scope(items: Sequence[ChangeItem]) -> dict[str, list[ChangeItem]]:
    found: dict[str, list[ChangeItem]] = {}
    for item in sorted(items, key=lambda each: each.target.place):
        found.setdefault(item.target.scope, []).append(item)
    return found


def _scope_update(items: Sequence[ChangeItem], reason: str | None) -> ScopeUpdate:
    return ScopeUpdate(
        settings={LimitSetting(each.target.setting): _setting_change(each) for each in items},
        reason=reason,
    )


def _policy_update(items: Sequence[ChangeItem], reason: str | None) -> PolicyUpdate:
    keys: dict[str, dict[KeySetting, Stored]] = {}
    for item in items:
        if item.target.key is not None:
            keys.setdefault(item.target.key, {})[KeySetting(item.target.setting)] = item.after
    return PolicyUpdate(
        settings={
            LimitSetting(each.target.setting): _setting_change(each)
            for each in items
            if each.target.key is None
        },
        keys={key: _key_change(values) for key, values in keys.items()},
        reason=reason,
    )


def _key_change(values: Mapping[KeySetting, Stored]) -> KeySettingsChange:
    def number(setting: KeySetting) -> int | Unset | None:
        value = values.get(setting)
        if setting not in values or isinstance(value, str):
            return None
        return UNSET if value is None else value

    paused = bool(values[KeySetting.PAUSED]) if KeySetting.PAUSED in values else None
    return KeySettingsChange(
        number(KeySetting.WEIGHT), number(KeySetting.RATE), number(KeySetting.LEASE_CAP), paused
    )


def _setting_change(item: ChangeItem) -> SettingChange:
    return SettingChange(UNSET if item.after is None else item.after, ends_at_ms=item.after_ends_at_ms)
