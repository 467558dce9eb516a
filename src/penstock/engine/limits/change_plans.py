"""The plan of a change set: what an apply would do now, with what is in use of each setting, read in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.core.limits.admission import LEASES_MAX, Admission, QueueLimits
from penstock.core.limits.change_plans import ChangeCheck, TargetUse, checks
from penstock.core.limits.change_sets import ItemTarget
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import Queue
from penstock.engine.context import EngineContext
from penstock.engine.limits import lease_holders
from penstock.engine.limits.change_set_state import ChangeSetView, queues_of, require, view
from penstock.engine.limits.policies import find_queue
from penstock.ports.gather import gather
from penstock.ports.store import Tx


class ChangePlan(Struct, frozen=True):
    """A change set with what to know before it is applied."""

    view: ChangeSetView
    checks: Sequence[ChangeCheck]


async def plan(ctx: EngineContext, namespace: str, change_set_id: str) -> ChangePlan:
    """What an apply would do now."""

    async def operation(tx: Tx) -> ChangePlan:
        found = await view(tx, await require(tx, namespace, change_set_id))
        if not found.change_set.may_be_applied:
            return ChangePlan(found, ())
        items = found.change_set.items
        uses = await _Uses(tx, [each.target for each in items], await tx.scopes.admission()).read()
        return ChangePlan(found, checks(items, found.moved, uses, found.lacking))

    return await ctx.store.read(operation, long=True)


class _Uses:
    """Reads what is in use of settings, and what else bounds them."""

    def __init__(self, tx: Tx, targets: Sequence[ItemTarget], limits: Admission) -> None:
        self._tx = tx
        self._targets = targets
        self._limits = limits
        self._queues: dict[str, Queue] = {}

    async def read(self) -> Mapping[ItemTarget, TargetUse]:
        """By setting."""
        for scope, named in queues_of(self._targets).items():
            self._queues[scope] = await find_queue(self._tx, *named)
        return {target: await self._use(target) for target in self._targets}

    async def _use(self, target: ItemTarget) -> TargetUse:
        queue = self._queues.get(target.scope)
        if target.setting == LimitSetting.QUEUE_RATE and queue is not None:
            return TargetUse(ceiling=queue.limits.rate_max_micro)
        if target.setting == LimitSetting.DISPATCHES and queue is not None:
            ceiling, whose = self._lowest(queue, leases=False)
            return TargetUse(None, ceiling, whose)
        if target.setting != LimitSetting.LEASE_CAP:
            return TargetUse()
        if queue is None:
            return TargetUse(await self._running_in(target.scope))
        if target.key is not None:
            return TargetUse(await self._running_of(queue, target.key), queue.rules.lease_cap, target.scope)
        ceiling, whose = self._lowest(queue, leases=True)
        return TargetUse(await self._tx.queues.running(queue.queue_id, LEASES_MAX), ceiling, whose)

    async def _running_of(self, queue: Queue, key: str) -> int | None:
        if not queue.rules.counts_leases_by_key:
            return None
        state = (await self._tx.policies.key_states(queue.queue_id, [key])).get(key)
        return 0 if state is None else state.running

    async def _running_in(self, scope: str) -> int:
        """The leases of all queues that a scope limits, whether it counts them yet or not."""
        queues = [each for each in await lease_holders.queues_of(self._tx, scope) if _is_in(scope, each)]
        return sum(await gather(*(self._tx.queues.running(each.queue_id, LEASES_MAX) for each in queues)))

    def _lowest(self, queue: Queue, *, leases: bool) -> tuple[int | None, str | None]:
        """The lowest limit among the scopes that a queue belongs to, and whose it is."""
        limits: QueueLimits = self._limits.of(
            queue.namespace, queue.name, queue.kind, queue.policy, self._tx.now_ms
        )
        found = [(each.leases if leases else each.dispatches, each.name) for each in limits.scopes]
        return min(((most, name) for most, name in found if most is not None), default=(None, None))


def _is_in(scope: str, queue: Queue) -> bool:
    """Whether a scope limits a queue of its namespace."""
    word, _, rest = scope.partition(":")
    parts = rest.split("/") if rest else scope.split("/")
    inside = parts[2:] if word == "group" else parts[1:]
    if word == "group" and queue.limits.group != parts[1]:
        return False
    return not inside or inside[0] == queue.kind
