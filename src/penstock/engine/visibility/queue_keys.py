"""All fairness keys of a queue, page by page: first those with waiting tasks, the largest backlog first.

A page begins behind the last key of the one before. While keys gain and lose tasks, a key whose backlog crosses that
place between two pages may be listed twice or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits.policies import KeyState
from penstock.core.model import TaskKind
from penstock.core.scheduling.backlog import KeyFilter, KeyPlace
from penstock.engine.context import EngineContext
from penstock.engine.limits import policies
from penstock.engine.visibility.task_queues import QueueKindView, kind_view
from penstock.ports.store import Tx


class KeysPage(Struct, frozen=True):
    """Some keys of a queue."""

    now_ms: int
    line: QueueKindView
    """The queue, and those keys for which tasks wait."""
    idle: Sequence[KeyState]
    """Those with settings or counted leases, for which none waits; listed behind the others."""
    after: KeyPlace | None
    """Where the next page begins; None on the last one."""


async def page(
    ctx: EngineContext,
    namespace: str,
    name: str,
    kind: TaskKind,
    wanted: KeyFilter,
    after: KeyPlace,
    limit: int,
) -> KeysPage:
    """Keys of a queue's tasks of one kind.

    Args:
        ctx: the server.
        namespace: the namespace.
        name: the task queue; one that was never used has no keys.
        kind: the kind of tasks.
        wanted: which keys.
        after: only keys behind this place.
        limit: how many.
    """

    async def operation(tx: Tx) -> KeysPage:
        queue = await policies.find_queue(tx, namespace, name, kind)
        line = await kind_view(tx, queue, limit + 1, wanted, after)
        keys, more = line.keys[:limit], len(line.keys) > limit
        room = limit - len(keys)
        behind = after.key if after.count == 0 else ""
        idle = await tx.policies.keys_without_backlog(queue.queue_id, wanted, behind, room + 1)
        places = [
            *(KeyPlace(each.part.lane.count, each.part.lane.level, each.part.lane.key) for each in keys),
            *(KeyPlace(0, 0, each.key) for each in idle[:room]),
        ]
        more = more or len(idle) > room
        return KeysPage(tx.now_ms, replace(line, keys=keys), idle[:room], places[-1] if more else None)

    return await ctx.store.read(operation, long=True)
