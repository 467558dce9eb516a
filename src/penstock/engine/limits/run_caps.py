"""Setting caps on runs, and counting the runs that were open before.

A change locks the admission row, which serializes changes, and in the same transaction counts the open runs of the
namespace that hold no place under the new cap yet (`_adopt`), so that the next start finds them counted. A start that
read that there is no cap, and commits after the change, is counted by the sweeper `uncounted_runs` within seconds; it
is taken as begun before the change. A change holds the lines in which runs wait, so that no turn admits one by the caps
of before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.history import lineage
from penstock.core.limits import run_caps
from penstock.core.limits.policies import LimitSetting, Policy, PolicyChange, changed
from penstock.core.limits.run_caps import RunCap, RunScope, RunScopeKind
from penstock.core.model import Run, RunId
from penstock.core.operations import journal_lines
from penstock.core.operations.run_cap_view import RunCapView
from penstock.core.timestamps import MINUTE_MS
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.engine.limits.admission import ScopeUpdate, change_entries, check_version
from penstock.engine.limits.policies import CHANGES_KEPT
from penstock.engine.runs.run_places import caps_of
from penstock.errors import Conflict, Reason
from penstock.ports.gather import gather
from penstock.ports.store import TransactionClass, Tx
from penstock.ports.tables.visibility import PageStart
from penstock.ports.wakeups import RUN_PLACES_TOPIC

ADOPTED_MAX = 2_000
"""Open runs that one transaction counts; more take further ones."""
RUNS_READ = 500
HOLDERS_SHOWN = 20
LATELY_MS = 5 * MINUTE_MS
"""No start takes longer: after that, none is being recorded that has not seen a change."""


async def configure(ctx: EngineContext, scope: RunScope, update: ScopeUpdate, author: str) -> None:
    """Change the cap of a scope, effective from the next start in it."""
    whole = run_caps.namespace_name(scope.namespace)

    async def operation(tx: Tx) -> PageStart | None:
        await tx.scopes.lock_admission()
        await _hold_lines(tx, scope.namespace)
        policy = (await tx.run_places.policies([scope.name])).get(scope.name, Policy())
        check_version(policy, update.if_version)
        settings, log = change_entries(policy, update, author, tx.now_ms)
        if not log:
            return None
        after = changed(policy, settings, ())
        _check(after, scope)
        names = [scope.name] if scope.name == whole else [scope.name, whole]
        ids = dict(zip(names, await tx.scopes.ids(names), strict=True))
        known = {row.name for row in await tx.run_places.rows_of(scope.namespace)}
        if whole not in names[:1] and whole not in known:
            tx.scopes.save_policy(ids[whole], Policy())
        tx.scopes.save_policy(ids[scope.name], after)
        tx.scopes.log(scope.name, log)
        if after.version > CHANGES_KEPT:
            tx.scopes.forget_changes(scope.name, after.version - CHANGES_KEPT)
        tx.wake(RUN_PLACES_TOPIC)
        return await _adopt(ctx, tx, scope.namespace, None, {scope.name: after})

    after = await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)
    while after is not None:
        after = await adopt(ctx, scope.namespace, after)


async def _hold_lines(tx: Tx, namespace: str) -> None:
    """Keep turns from admitting runs until the commit: they read the caps again under the lock of their line.

    A turn that has the lock already commits before, and its runs are counted with those that are open.
    """
    lines = await tx.run_places.standing_lines(namespace)
    if lines:
        await tx.scopes.lock(lines)


def _check(policy: Policy, scope: RunScope) -> None:
    """Refuse a surplus policy without a cap: it would do nothing."""
    if policy.word(LimitSetting.SURPLUS) is not None and policy.number(LimitSetting.OPEN_RUNS) is None:
        raise Conflict(
            Reason.RUN_CAP_CONTRADICTION,
            f"{run_caps.scope_text(scope.name)} has no cap on runs, so there is no surplus. Set max_open_runs too, or "
            "unset surplus together with it.",
            scope=scope.name,
        )


async def adopt(ctx: EngineContext, namespace: str, after: PageStart | None) -> PageStart | None:
    """Count open runs of a namespace that a cap should count and does not; returns where to go on, if not at the end.

    Args:
        ctx: the server.
        namespace: the namespace.
        after: only runs that started after this one; None: all.
    """

    async def operation(tx: Tx) -> PageStart | None:
        return await _adopt(ctx, tx, namespace, after, {})

    return await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)


async def adopt_latest(ctx: EngineContext, namespace: str) -> None:
    """`adopt` runs whose start was being recorded while a cap was changed, if one was changed lately."""

    async def operation(tx: Tx) -> int | None:
        settings = [
            each for row in await tx.run_places.rows_of(namespace) for each in row.policy.settings.values()
        ]
        newest_ms = max((each.at_ms for each in settings), default=0)
        return newest_ms if newest_ms > tx.now_ms - LATELY_MS else None

    changed_at_ms = await ctx.store.read(operation)
    after = None if changed_at_ms is None else PageStart(changed_at_ms - LATELY_MS, "")
    while after is not None:
        after = await adopt(ctx, namespace, after)


async def _adopt(
    ctx: EngineContext, tx: Tx, namespace: str, after: PageStart | None, new: Mapping[str, Policy]
) -> PageStart | None:
    """`adopt`, where `new` are policies that this transaction has not written yet."""
    found: list[tuple[Run, Sequence[RunCap]]] = []
    while page := await tx.run_places.open_runs(namespace, after, RUNS_READ):
        runs = [
            run for run in await tx.runs.get_many([RunId(each.run_id) for each in page]) if run is not None
        ]
        caps = await caps_of(tx, runs, new)
        found += [(run, caps[run.run_id]) for run in runs if not run.waits.to_start]
        after = page[-1] if len(page) == RUNS_READ else None
        if after is None or len(found) >= ADOPTED_MAX:
            break
    await _count(ctx, tx, found)
    return after


async def _count(ctx: EngineContext, tx: Tx, found: Sequence[tuple[Run, Sequence[RunCap]]]) -> None:
    """Give runs the places that they lack, whether there is room or not."""
    ids = await _ids(tx, sorted({cap.name for _, caps in found for cap in caps}))
    behind = [(run, caps) for run, caps in found if _missing(run, caps, ids)]
    if not behind:
        return
    states = {state.name: state for state in await tx.scopes.lock([*ids.values()])}
    more = await _give_places(ctx, tx, behind, ids)
    for name, count in more.items():
        tx.scopes.settle(replace(states[name], granted=states[name].granted + count))


async def _give_places(
    ctx: EngineContext,
    tx: Tx,
    behind: Sequence[tuple[Run, Sequence[RunCap]]],
    ids: Mapping[str, int],
) -> Mapping[str, int]:
    """Lock runs and record the places that they lack, if they are still open; returns how many in each scope."""
    more: Counter[str] = Counter()
    locked = await gather(*(tx.runs.lock(run.run_id) for run, _ in behind))
    for run, (_, caps) in zip(locked, behind, strict=True):
        missing = _added(ctx, tx, run, caps, ids)
        more.update(cap.name for cap in missing)
    return more


async def _ids(tx: Tx, names: Sequence[str]) -> Mapping[str, int]:
    return dict(zip(names, await tx.scopes.ids(names), strict=True)) if names else {}


def _added(
    ctx: EngineContext, tx: Tx, run: Run | None, caps: Sequence[RunCap], ids: Mapping[str, int]
) -> Sequence[RunCap]:
    """Record the places that a locked run lacks, if it is still open; returns their caps."""
    if run is None or not run.is_open or run.waits.to_start:
        return ()
    missing = _missing(run, caps, ids)
    if not missing:
        return ()
    places = tuple(ids[cap.name] for cap in missing)
    tx.runs.save(replace(run, waits=replace(run.waits, places=(*run.waits.places, *places))))
    tx.run_places.take(run, places)
    if ctx.store.journals:
        tx.journal.append(journal_lines.run_admitted(lineage.first_of(run), missing, tx.now_ms, adopted=True))
    return missing


def _missing(run: Run, caps: Sequence[RunCap], ids: Mapping[str, int]) -> list[RunCap]:
    return [cap for cap in caps if ids[cap.name] not in run.waits.places]


async def read(ctx: EngineContext, scope: RunScope) -> RunCapView:
    """The cap of a scope with its use."""

    async def operation(tx: Tx) -> RunCapView:
        policy = (await tx.run_places.policies([scope.name])).get(scope.name, Policy())
        return await _view(tx, scope, policy, HOLDERS_SHOWN)

    return await ctx.store.read(operation)


async def read_all(ctx: EngineContext, namespace: str) -> Sequence[RunCapView]:
    """Every scope of a namespace that has a cap on runs, by name."""

    async def operation(tx: Tx) -> Sequence[RunCapView]:
        return [
            await _view(tx, run_caps.scope_of(row.name), row.policy, 0)
            for row in await tx.run_places.rows_of(namespace)
            if row.policy.at(tx.now_ms).settings
        ]

    return await ctx.store.read(operation)


async def _view(tx: Tx, scope: RunScope, policy: Policy, holders: int) -> RunCapView:
    policy = policy.at(tx.now_ms)
    found = await tx.scopes.find([scope.name])
    if not found or scope.kind is RunScopeKind.EACH_KEY:
        return RunCapView(scope, policy, 0, 0)
    scope_id = found[0].scope_id
    ((_, waiting),) = await tx.run_places.counts([scope_id])
    held = await tx.run_places.holders(scope_id, holders) if holders else ()
    runs = await tx.runs.get_many([place.run_id for place in held])
    return RunCapView(scope, policy, found[0].running, waiting, [run for run in runs if run is not None])


async def history(ctx: EngineContext, scope: RunScope, limit: int) -> Sequence[PolicyChange]:
    """The change log of a cap, newest first."""
    return await admission.history(ctx, scope.name, limit)


async def check(ctx: EngineContext, name: str) -> int:
    """Compare a scope's counter with the places that are held in it and correct it; returns by how much it was off.

    The counters are transactional, so a difference means a manual change to the database: callers report it.
    """

    async def difference(tx: Tx) -> int:
        found = await tx.scopes.find([name])
        if not found:
            return 0
        ((held, _),) = await tx.run_places.counts([found[0].scope_id])
        return found[0].running - held

    async def operation(tx: Tx) -> int:
        (state,) = await tx.scopes.lock(await tx.scopes.ids([name]))
        ((held, _),) = await tx.run_places.counts([state.scope_id])
        if held != state.running:
            tx.scopes.settle(replace(state, granted=state.ended + held))
            tx.wake(RUN_PLACES_TOPIC)
        return state.running - held

    if not await ctx.store.read(difference):
        return 0
    return await ctx.store.transact(operation, key="admission", tx_class=TransactionClass.CHANGE)
