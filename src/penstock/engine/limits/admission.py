"""Limits shared by several queues (namespace, budget group, cluster), declared by configuration or set by operators.

A change locks every queue in its scope, has the scope count the queues' existing leases, and gives the queues a new
stamp, which invalidates the limits that servers have cached. So the next grant on any server obeys the new limits, and
no lease is uncounted: `cap-never-exceeded`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.admission import Admission, Declaration, QueueLimits, ScopeRow, namespace_of
from penstock.core.limits.declarations import HISTORY, Difference, differences, history_of, is_older
from penstock.core.limits.policies import LimitSetting, Policy, PolicyChange, SettingValue, changed
from penstock.core.model import Queue
from penstock.core.operations import journal_lines
from penstock.engine.context import EngineContext
from penstock.engine.limits.adoption import adopt
from penstock.engine.limits.policies import CHANGES_KEPT, SettingChange, Unset, check_direct
from penstock.errors import Conflict, Reason
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.wakeups import queue_topic, scope_topic

DECLARED = "declared"
"""The name of the limits of a configuration, where changes of scopes are listed."""


class ScopeUpdate(Struct, frozen=True):
    """An atomic change of a scope's limits."""

    settings: Mapping[LimitSetting, SettingChange] = field(default_factory=dict)
    reason: str | None = None
    ends_at_ms: int | None = None
    """When the values it sets expire by themselves."""
    if_version: int | None = None


class ScopeChange(Struct, frozen=True):
    """The limits of a scope after a change, and the entries of its log."""

    name: str
    policy: Policy
    log: Sequence[PolicyChange]


class DeclarationResult(Struct, frozen=True):
    """How a declaration differs from the stored one, and whether it was applied."""

    before: Admission
    differences: Sequence[Difference]
    is_refused: bool = False
    """Whether the stored limits were kept because their version is higher."""


async def declare(ctx: EngineContext, declaration: Declaration, by: str) -> DeclarationResult | None:
    """Apply a configuration's limits to the cluster; None if they are already in force.

    Operators' settings override it. A declaration with a lower version than the stored one is refused; otherwise the
    last server to start wins, and the change history shows each limit that changed.
    """

    async def is_known(tx: Tx) -> bool:
        return (await tx.scopes.admission()).declaration == declaration

    async def operation(tx: Tx) -> DeclarationResult | None:
        before = await tx.scopes.lock_admission()
        if before.declaration == declaration:
            return None
        found = differences(before.declaration, declaration)
        if is_older(before.declaration, declaration):
            return DeclarationResult(before, found, is_refused=True)
        queues = await tx.scopes.lock_queues(None)
        after = replace(before, declaration=declaration)
        tx.scopes.declare(declaration, by)
        version = before.version + 1
        changes = history_of(found, version, tx.now_ms, by, declaration.version)
        tx.scopes.log(HISTORY, changes)
        if ctx.store.journals:
            tx.journal.append(journal_lines.settings(DECLARED, changes, tx.now_ms))
        if version > CHANGES_KEPT:
            tx.scopes.forget_changes(HISTORY, version - CHANGES_KEPT)
        await take_effect(ctx, tx, queues, after)
        return DeclarationResult(before, found)

    if await ctx.store.read(is_known):
        return None
    return await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)


async def configure(ctx: EngineContext, name: str, update: ScopeUpdate, author: str) -> None:
    """Change the operators' limits of a scope, effective from the next grant of any of its queues."""

    async def operation(tx: Tx) -> None:
        before = await tx.scopes.lock_admission()
        change = scope_change(before, name, update, author, tx.now_ms)
        if change is None:
            return
        check_direct(change.log, name, before, tx.now_ms)
        queues = await tx.scopes.lock_queues(namespace_of(name))
        await take_effect(ctx, tx, queues, await save_scopes(ctx, tx, before, [change]))

    await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)


def scope_change(
    before: Admission, name: str, update: ScopeUpdate, author: str, now_ms: int
) -> ScopeChange | None:
    """The new limits of a scope and their log entries; None if nothing changes."""
    row = before.row(name)
    policy = Policy() if row is None else row.policy
    check_version(policy, update.if_version)
    settings, log = change_entries(policy, update, author, now_ms)
    return ScopeChange(name, changed(policy, settings, ()), log) if log else None


async def save_scopes(
    ctx: EngineContext, tx: Tx, before: Admission, changes: Sequence[ScopeChange]
) -> Admission:
    """Save the new limits of scopes, under the locks of all their queues; returns all limits as they are afterwards."""
    rows = {row.name: row for row in before.rows}
    for change in changes:
        (scope_id,) = await tx.scopes.ids([change.name])
        tx.scopes.save_policy(scope_id, change.policy)
        tx.scopes.log(change.name, change.log)
        if ctx.store.journals:
            tx.journal.append(journal_lines.settings(change.name, change.log, tx.now_ms))
        if change.policy.version > CHANGES_KEPT:
            tx.scopes.forget_changes(change.name, change.policy.version - CHANGES_KEPT)
        tx.wake(scope_topic(scope_id))
        rows[change.name] = ScopeRow(scope_id, change.name, change.policy)
    return replace(before, rows=tuple(rows.values()))


async def create_scope(ctx: EngineContext, name: str) -> None:
    """Create a scope without limits, so that its queues check it and it can be closed."""

    async def operation(tx: Tx) -> None:
        before = await tx.scopes.lock_admission()
        if before.row(name) is not None:
            return
        queues = await tx.scopes.lock_queues(namespace_of(name))
        (scope_id,) = await tx.scopes.ids([name])
        tx.scopes.save_policy(scope_id, Policy())
        after = replace(before, rows=(*before.rows, ScopeRow(scope_id, name, Policy())))
        await take_effect(ctx, tx, queues, after)

    await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)


async def history(ctx: EngineContext, name: str, limit: int) -> Sequence[PolicyChange]:
    """The change log of a scope's limits, newest first."""

    return await ctx.store.read(lambda tx: tx.scopes.changes(name, limit))


async def declaration_history(ctx: EngineContext, limit: int) -> Sequence[PolicyChange]:
    """The change log of declared limits, newest first."""
    return await history(ctx, HISTORY, limit)


async def take_effect(ctx: EngineContext, tx: Tx, queues: Sequence[Queue], after: Admission) -> None:
    """Have each scope count the leases of the queues it now limits, and invalidate the queues' cached limits.

    Args:
        ctx: The server.
        tx: The transaction, which has locked the admission row and the queues.
        queues: All queues that the changed limits may concern, with their settings after the change.
        after: All limits after the change.
    """
    stamp = ctx.entropy.token()
    joined: dict[str, list[Queue]] = {}
    for queue in queues:
        for rules in _limits(after, queue, tx.now_ms).scopes:
            joined.setdefault(rules.name, []).append(queue)
    if joined:
        await adopt(tx, joined)
    tx.scopes.stamp(stamp, [queue.queue_id for queue in queues])
    for queue in queues:
        tx.wake(queue_topic(queue.queue_id))


def _limits(admission: Admission, queue: Queue, now_ms: int) -> QueueLimits:
    return admission.of(queue.namespace, queue.name, queue.kind, queue.policy, now_ms)


def check_version(policy: Policy, if_version: int | None) -> None:
    """Raise `Conflict` if a change expects another version of the settings."""
    if if_version is not None and if_version != policy.version:
        raise Conflict(
            Reason.CONFIG_VERSION_CONFLICT,
            f"The limits are at version {policy.version}, not {if_version}. Read them again, then repeat the change.",
            current_version=policy.version,
        )


def change_entries(
    policy: Policy, update: ScopeUpdate, author: str, now_ms: int
) -> tuple[dict[LimitSetting, SettingValue | None], list[PolicyChange]]:
    """The settings that a change makes, and its entries of the change log."""
    settings: dict[LimitSetting, SettingValue | None] = {}
    log: list[PolicyChange] = []
    for setting_name, each in update.settings.items():
        before = policy.settings.get(setting_name)
        reason = each.reason or update.reason
        after = _after(before, each, update, SettingValue(0, author, now_ms, reason))
        if _comparable(before) == _comparable(after):
            continue
        settings[setting_name] = after
        old, new = (None if one is None else str(one.value) for one in (before, after))
        log.append(
            PolicyChange(policy.version + 1, now_ms, author, setting_name.value, None, old, new, reason)
        )
    return settings, log


def _after(
    before: SettingValue | None, each: SettingChange, update: ScopeUpdate, made: SettingValue
) -> SettingValue | None:
    """The setting after the change: as it was `made`, with its value and end; None if it is unset."""
    if isinstance(each.value, Unset):
        return None
    value = each.value if each.value is not None else None if before is None else before.value
    ends_at_ms = update.ends_at_ms if each.ends_at_ms is None else each.ends_at_ms
    return None if value is None else replace(made, value=value, ends_at_ms=ends_at_ms)


def _comparable(setting: SettingValue | None) -> tuple[object, ...] | None:
    return None if setting is None else (setting.value, setting.reason, setting.ends_at_ms)


async def check(ctx: EngineContext, name: str) -> int:
    """Compare a scope's counter with its leases and correct it; returns by how much it was off.

    The counters are transactional, so a difference means a manual change to the database: callers report it.
    """

    async def is_correct(tx: Tx) -> bool:
        found = await tx.scopes.find([name])
        return not found or not await tx.scopes.difference(found[0].scope_id)

    async def operation(tx: Tx) -> int:
        queues = await tx.scopes.lock_queues(namespace_of(name))
        ids = await tx.scopes.ids([name])
        (state,) = await tx.scopes.lock(ids)
        held = await tx.scopes.hold(state.scope_id, [queue.queue_id for queue in queues])
        (state,) = await tx.scopes.lock(ids)
        if held != state.running:
            tx.scopes.settle(replace(state, granted=state.ended + held))
        return state.running - held

    if await ctx.store.read(is_correct):
        return 0
    return await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)
