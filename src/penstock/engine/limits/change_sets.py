"""Change sets: propose, apply, withdraw, roll back and expire several settings of limits as one.

An apply locks the change set, the admission row and every queue concerned, compares each setting with what the author
saw, and writes all of them and the change set in that transaction: so either all settings are in force from the next
grant on, or none. The rules are in `core.limits.change_sets`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.admission import Admission, namespace_of, queue_of_scope
from penstock.core.limits.change_approvals import counting
from penstock.core.limits.change_sets import (
    ITEMS_MAX,
    BreakGlass,
    ChangeItem,
    ChangeSet,
    ChangeSetState,
    Current,
    CurrentValue,
    ItemTarget,
    KeySetting,
    Stored,
    applied,
    as_found,
    draft,
    ended,
    expiring,
    inverse,
    is_half_of_aging,
    left_alone,
    scheduled,
    undoing,
)
from penstock.core.limits.policies import AGING_SETTINGS, LimitSetting
from penstock.core.model import Queue, TaskKind
from penstock.core.permissions import Principal, RouteFamily, authorize
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.engine.limits.admission import ScopeChange, ScopeUpdate
from penstock.engine.limits.adoption import adopt
from penstock.engine.limits.change_set_state import (
    ChangeSetView,
    PresentState,
    check_may_change,
    check_plan,
    lock,
    present,
    queues_of,
    require,
    state_of,
    view,
    wrong_state,
)
from penstock.engine.limits.policies import (
    AGING_NEEDS_BOTH,
    UNSET,
    KeySettingsChange,
    PolicyUpdate,
    QueueChange,
    SettingChange,
    Unset,
    check_kind,
)
from penstock.errors import Conflict, Reason, ValidationFailed
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


class ApplyRequest(Struct, frozen=True):
    """How a change set is applied."""

    at_ms: int | None = None
    """When the server does; None: now."""
    plan: str | None = None
    """The hash of the plan that was reviewed; another one is refused. None: whatever it is."""
    break_glass: str | None = None
    """Why an admin does not wait for approvals; None: they are needed."""


async def propose(
    ctx: EngineContext, namespace: str, request: ChangeSetRequest, principal: Principal
) -> ChangeSetView:
    """Record a change set, with the values that its settings have now."""
    check_may_change(principal, [each.scope for each in request.asked])

    async def operation(tx: Tx) -> ChangeSetView:
        state = await present(tx, request.asked)
        change_set = await _drafted(ctx, tx, namespace, request, principal.credential, state.current)
        tx.change_sets.create(change_set)
        return ChangeSetView(change_set, state)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def edit(
    ctx: EngineContext, namespace: str, change_set_id: str, request: ChangeSetRequest, principal: Principal
) -> ChangeSetView:
    """Replace what a change set does, by the present values. The caller is its author then; it has no approvals."""
    check_may_change(principal, [each.scope for each in request.asked])

    async def operation(tx: Tx) -> ChangeSetView:
        found = await lock(tx, namespace, change_set_id, principal)
        if not found.may_be_applied:
            raise wrong_state(found, "edited", "Propose a new one.")
        if found.undoes is not None:
            raise Conflict(
                Reason.CHANGE_SET_STATE_CONFLICT,
                "A rollback is the inverse of what it undoes, so it cannot be edited. Withdraw it, or propose another.",
                state=found.state.value,
            )
        state = await present(tx, request.asked)
        drafted = await _drafted(ctx, tx, namespace, request, principal.credential, state.current)
        done = replace(
            drafted,
            change_set_id=change_set_id,
            created_at_ms=found.created_at_ms,
            edited_at_ms=tx.now_ms,
        )
        tx.change_sets.save(done)
        return ChangeSetView(done, state)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def roll_back(
    ctx: EngineContext, namespace: str, change_set_id: str, reason: str, principal: Principal
) -> ChangeSetView:
    """Propose the inverse of an applied change set. It is applied by the rules for every change set."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await require(tx, namespace, change_set_id)
        check_may_change(principal, [each.target.scope for each in found.items])
        if found.state is not ChangeSetState.APPLIED:
            raise wrong_state(found, "rolled back", "Only one that is applied can be rolled back.")
        items = inverse(found.items)
        request = ChangeSetRequest({each.target: each.after for each in items}, reason)
        change_set = _checked(ctx, tx, namespace, request, principal.credential, items, undoes=change_set_id)
        tx.change_sets.create(change_set)
        return await view(tx, change_set)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def get(ctx: EngineContext, namespace: str, change_set_id: str) -> ChangeSetView:
    """A change set with the present state of what it changes."""

    async def operation(tx: Tx) -> ChangeSetView:
        return await view(tx, await require(tx, namespace, change_set_id))

    return await ctx.store.read(operation)


async def page(
    ctx: EngineContext, namespace: str, state: ChangeSetState | None, before: PageStart | None, limit: int
) -> Sequence[ChangeSet]:
    """The change sets of a namespace, newest first."""
    return await ctx.store.read(lambda tx: tx.change_sets.page(namespace, state, before, limit))


async def apply(
    ctx: EngineContext,
    namespace: str,
    change_set_id: str,
    principal: Principal,
    request: ApplyRequest = ApplyRequest(),  # noqa: B008
) -> ChangeSetView:
    """Apply a change set. One that is stale is returned as it was, with what moved, and nothing is changed.

    Raises `Conflict` if approvals are missing, unless an admin breaks the glass.
    """
    if request.break_glass is not None:
        authorize(principal, RouteFamily.SYSTEM)

    async def operation(tx: Tx) -> ChangeSetView:
        found = await lock(tx, namespace, change_set_id, principal)
        if not found.may_be_applied:
            raise wrong_state(found, "applied", "Propose a new one.")
        await _move_expiries(tx, found)
        change = _Application(ctx, tx, found.items)
        await change.lock()
        before = ChangeSetView(found, change.state)
        if before.moved:
            raise _StaleItems(before)
        check_plan(before, request.plan)
        if request.break_glass is not None:
            glass = BreakGlass(principal.credential, tx.now_ms, request.break_glass, before.lacking)
            found = replace(found, break_glass=glass)
        elif before.lacking:
            raise _not_approved(before)
        done = await change.apply(found, principal.credential)
        return ChangeSetView(done, change.state_after(done, principal.credential))

    try:
        return await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)
    except _StaleItems as stale:
        return stale.view


async def schedule(
    ctx: EngineContext, namespace: str, change_set_id: str, principal: Principal, request: ApplyRequest
) -> ChangeSetView:
    """Have the server apply a change set at a time. Approvals that are missing may be given until then."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await view(tx, await lock(tx, namespace, change_set_id, principal))
        if not found.change_set.may_be_applied:
            raise wrong_state(found.change_set, "applied", "Propose a new one.")
        assert request.at_ms is not None, "this is for a later apply"
        _check_time(request.at_ms, tx.now_ms)
        check_plan(found, request.plan)
        done = scheduled(found.change_set, request.at_ms, principal.credential)
        tx.change_sets.save(done)
        return ChangeSetView(done, found.state)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def withdraw(
    ctx: EngineContext, namespace: str, change_set_id: str, principal: Principal
) -> ChangeSetView:
    """Give up a change set that is not applied."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await lock(tx, namespace, change_set_id, principal)
        if not found.may_be_applied:
            raise wrong_state(found, "withdrawn", "Roll back one that is applied.")
        done = ended(found, ChangeSetState.WITHDRAWN, principal.credential, tx.now_ms)
        tx.change_sets.save(done)
        return await view(tx, done)

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
    before = ChangeSetView(found, change.state)
    if before.moved or before.lacking:
        done = ended(found, ChangeSetState.REFUSED, None, tx.now_ms, tuple(before.moved), before.lacking)
        tx.change_sets.save(done)
        return
    await change.apply(found, found.scheduled_by or found.author)


async def _expire(ctx: EngineContext, tx: Tx, found: ChangeSet) -> None:
    items = inverse(found.items)
    change = _Application(ctx, tx, items)
    await change.lock()
    current = change.state.current
    left = left_alone(found, current)
    change.items = as_found(undoing(found, current), current, tx.now_ms)
    await change.write(found.author, f"{found.change_set_id} expired")
    tx.change_sets.save(ended(found, ChangeSetState.EXPIRED, None, tx.now_ms, left))


class _StaleItems(Exception):
    """Ends the transaction of an apply without a trace, also of queues that it created."""

    def __init__(self, view: ChangeSetView) -> None:
        super().__init__("stale")
        self.view = view


class _Application:
    """Writes items in one transaction: first `lock`, then a decision by `state`, then `write`."""

    def __init__(self, ctx: EngineContext, tx: Tx, items: Sequence[ChangeItem]) -> None:
        self._ctx = ctx
        self._tx = tx
        self.items = items
        self.state = PresentState({}, {}, 0, tx.now_ms)
        self._admission = Admission()
        self._queues: dict[str, Queue] = {}
        """The locked queues that have items, by scope."""
        self._versions: dict[str, int] = {}
        """The versions of all scopes after the change."""
        self._others: Sequence[Queue] = ()
        """The other queues that changed scopes limit, locked."""

    async def lock(self) -> None:
        """Lock the limits and all queues concerned, in the common order, and read the present values."""
        tx = self._tx
        self._admission = await tx.scopes.lock_admission()
        named = {scope: await tx.queues.ensure(*queue) for scope, queue in queues_of(self._targets).items()}
        shared = {each.target.scope for each in self.items} - named.keys()
        locked = {queue.queue_id: queue for queue in await self._locked(shared, list(named.values()))}
        self._queues = {scope: locked.pop(queue.queue_id) for scope, queue in named.items()}
        self._others = list(locked.values())
        self.state = await state_of(tx, self._targets, self._queues, self._admission)

    @property
    def _targets(self) -> Sequence[ItemTarget]:
        return [each.target for each in self.items]

    def state_after(self, done: ChangeSet, author: str) -> PresentState:
        """The state after an apply."""
        now_ms = self.state.now_ms
        after = {each.target: CurrentValue(each.after, author, now_ms) for each in done.items}
        return PresentState(after, self.state.versions, self.state.wanted, now_ms)

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
        self.items = items = as_found(found.items, self.state.current, now_ms)
        await self.write(author, _log_reason(found))
        approvals = counting(found, self.state.versions, now_ms)
        done = applied(found, items, author, now_ms)
        done = replace(done, approvals=approvals, versions=self._versions)
        self._tx.change_sets.save(done)
        return done

    async def write(self, author: str, reason: str) -> None:
        """Write all items, with log entries, and have them take effect at the next grant."""
        tx, before = self._tx, self._admission
        changes = self._scope_changes(author, reason)
        self._versions = dict(self.state.versions) | {each.name: each.policy.version for each in changes}
        after = await admission.save_scopes(self._ctx, tx, before, changes) if changes else before
        queues = []
        joined: dict[str, list[Queue]] = {}
        for scope, items in _by_scope(self.items).items():
            if scope in self._queues:
                update = _policy_update(items, reason)
                change = QueueChange(self._ctx, tx, self._queues[scope], update, author, after)
                await change.make()
                queues.append(change.after)
                self._versions[scope] = change.after.policy.version
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


async def _drafted(
    ctx: EngineContext,
    tx: Tx,
    namespace: str,
    request: ChangeSetRequest,
    author: str,
    current: Current,
) -> ChangeSet:
    """A new change set by the present values; settings that have theirs already are left out."""
    items = draft(request.asked, current)
    await _check_aging(tx, request.asked)
    return _checked(ctx, tx, namespace, request, author, items)


def _checked(
    ctx: EngineContext,
    tx: Tx,
    namespace: str,
    request: ChangeSetRequest,
    author: str,
    items: tuple[ChangeItem, ...],
    undoes: str | None = None,
) -> ChangeSet:
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
    if request.apply_at_ms is not None:
        _check_time(request.apply_at_ms, tx.now_ms)
    return ChangeSet(
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
        scheduled_by=None if request.apply_at_ms is None else author,
    )


def _check_time(at_ms: int, now_ms: int) -> None:
    if at_ms <= now_ms:
        raise ValidationFailed(
            {"apply_at": ["is over already. Leave it out to apply the change set yourself"]}
        )


def _not_approved(found: ChangeSetView) -> Conflict:
    wanted, lack = found.state.wanted, found.lacking
    return Conflict(
        Reason.CHANGE_NEEDS_APPROVAL,
        f"{lack} of {wanted} approvals are missing. Others than {found.change_set.author} give them with "
        f"`penstock change approve {found.change_set.change_set_id}`; an admin may break the glass.",
        wanted=wanted,
        missing=lack,
    )


async def _check_aging(tx: Tx, asked: Mapping[ItemTarget, Stored]) -> None:
    """Refuse what no apply could write: one half of a queue's aging without the other."""
    halves = [each for each in asked if each.key is None and each.setting in AGING_SETTINGS]
    pairs = {ItemTarget(each.scope, setting_name) for each in halves for setting_name in AGING_SETTINGS}
    current = (await present(tx, pairs)).current
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


def _log_reason(found: ChangeSet) -> str:
    glass = found.break_glass
    if glass is None:
        return f"{found.reason} (change set {found.change_set_id})"
    return f"{found.reason} (change set {found.change_set_id}, BREAK-GLASS by {glass.by}: {glass.reason})"


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
