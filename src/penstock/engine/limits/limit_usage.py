"""Limits and their usage as operators read them: of a queue, a namespace, a budget group or the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.admission import LEASES_MAX, Admission
from penstock.core.model import Queue, RunId, Task, TaskKind
from penstock.core.operations import limits_view
from penstock.core.operations.limits_view import LimitPart, LimitsView, Parts, ScopeUse
from penstock.core.scheduling.gates import ScopeState
from penstock.engine.context import EngineContext
from penstock.engine.limits import lease_holders, policies
from penstock.ports.gather import gather
from penstock.ports.store import Tx

HOLDERS_SHOWN = 100


class QueueLimitsView(Struct, frozen=True):
    """A queue's own limits, and those of the scopes that it belongs to."""

    queue: Queue
    own: LimitsView
    scopes: Sequence[ScopeUse]


class BudgetGroupView(Struct, frozen=True):
    """A budget group and its member queues."""

    group: str
    namespace: str
    """The group's namespace, or `*` for a group that all namespaces share."""
    parts: Mapping[LimitPart, LimitsView]
    members: Sequence[Queue]


async def now_ms(ctx: EngineContext) -> int:
    """The store's time, which all servers share and by which limits expire."""

    async def operation(tx: Tx) -> int:
        return tx.now_ms

    return await ctx.store.read(operation)


async def of_queue(ctx: EngineContext, namespace: str, name: str, kind: TaskKind) -> QueueLimitsView:
    """The limits of a queue; for a queue that was never used, those that would apply."""

    async def operation(tx: Tx) -> QueueLimitsView:
        admission, queue = await gather(tx.scopes.admission(), policies.find_queue(tx, namespace, name, kind))
        found = admission.of(namespace, name, kind, queue.policy, tx.now_ms)
        queue = replace(queue, limits=found, at_ms=tx.now_ms)
        running, held, states = await gather(
            tx.queues.running(queue.queue_id, LEASES_MAX),
            lease_holders.of_queue(tx, queue),
            _states(tx, [each.name for each in found.scopes]),
        )
        holders = held[:HOLDERS_SHOWN]
        own = limits_view.queue_limits(admission, queue, running, tx.now_ms)
        return QueueLimitsView(
            queue,
            own.held_by(holders, await _workflows(tx, holders)),
            [limits_view.use(rules, states.get(rules.name), tx.now_ms) for rules in found.scopes],
        )

    return await ctx.store.read(operation, long=True)


async def of_parts(ctx: EngineContext, parts: Parts) -> Mapping[LimitPart, LimitsView]:
    """The limits and usage of a namespace's or the cluster's scopes, with their first holders."""

    async def operation(tx: Tx) -> Mapping[LimitPart, LimitsView]:
        return await _parts(tx, parts, await lease_holders.queues_of(tx, parts[LimitPart.ALL]))

    return await ctx.store.read(operation, long=True)


async def of_group(ctx: EngineContext, namespace: str, group: str) -> BudgetGroupView:
    """A budget group with its first holders; an unlimited group is empty, not an error."""

    async def operation(tx: Tx) -> BudgetGroupView:
        parts = limits_view.group_parts(namespace, group)
        queues = [
            each
            for each in await lease_holders.queues_of(tx, parts[LimitPart.ALL])
            if each.limits.group == group
        ]
        return BudgetGroupView(group, namespace, await _parts(tx, parts, queues), queues)

    return await ctx.store.read(operation, long=True)


async def groups(ctx: EngineContext, namespace: str) -> Sequence[BudgetGroupView]:
    """Every budget group that queues of a namespace can belong to, without the holders."""

    async def operation(tx: Tx) -> Sequence[BudgetGroupView]:
        admission, queues = await gather(tx.scopes.admission(), tx.queues.list(namespace))
        found = [
            (owner, group, limits_view.group_parts(owner, group))
            for owner, group in limits_view.groups(admission, namespace, queues)
        ]
        states = await _states(tx, [name for _, _, parts in found for name in parts.values()])
        return [
            BudgetGroupView(
                group,
                owner,
                {
                    part: limits_view.scope_limits(admission, name, queues, states.get(name), tx.now_ms)
                    for part, name in parts.items()
                },
                [each for each in queues if each.limits.group == group],
            )
            for owner, group, parts in found
        ]

    return await ctx.store.read(operation, long=True)


async def _parts(tx: Tx, parts: Parts, queues: Sequence[Queue]) -> Mapping[LimitPart, LimitsView]:
    admission, states = await gather(tx.scopes.admission(), _states(tx, list(parts.values())))
    found = await gather(*(_part(tx, admission, name, queues, states.get(name)) for name in parts.values()))
    return dict(zip(parts, found, strict=True))


async def _part(
    tx: Tx, admission: Admission, name: str, queues: Sequence[Queue], state: ScopeState | None
) -> LimitsView:
    view = limits_view.scope_limits(admission, name, queues, state, tx.now_ms)
    holders: Sequence[Task] = ()
    if state is not None and view.leases.used:
        holders = await lease_holders.of_queues(tx, state, queues, HOLDERS_SHOWN)
    return view.held_by(holders, await _workflows(tx, holders))


async def _states(tx: Tx, names: Sequence[str]) -> Mapping[str, ScopeState]:
    return {state.name: state for state in await tx.scopes.find(names)} if names else {}


async def _workflows(tx: Tx, holders: Sequence[Task]) -> Mapping[RunId, str]:
    ids = list(dict.fromkeys(task.run_id for task in holders))
    return (
        {run.run_id: run.workflow_id for run in await tx.runs.get_many(ids) if run is not None} if ids else {}
    )
