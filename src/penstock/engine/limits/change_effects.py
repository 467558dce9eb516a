"""What was granted under a change set, read from the journal. The measure is in `core.limits.change_effects`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from penstock.core.limits.change_effects import CitingGrant, ScopeEffect, effects
from penstock.core.limits.change_sets import ChangeSet
from penstock.engine.context import EngineContext
from penstock.engine.limits.change_set_state import require, view
from penstock.ports.store import Tx

BEFORE_MS = 3_600_000
"""How long before the apply grants are compared with."""
GRANTS_READ_MAX = 200_000
_PAGE = 10_000
_decode = msgspec.json.Decoder(CitingGrant).decode


class ChangeEffect(Struct, frozen=True):
    """The grants under a change set, and why there may have been others."""

    change_set: ChangeSet
    scopes: Sequence[ScopeEffect] = ()
    gaps: Sequence[str] = ()
    """What the journal cannot tell; empty: it is complete."""


async def effect(ctx: EngineContext, namespace: str, change_set_id: str) -> ChangeEffect:
    """What was granted under a change set, compared with what was granted in the hour before it."""
    found, present = await ctx.store.read(lambda tx: _state(tx, namespace, change_set_id))
    if found.applied_at_ms is None or not found.versions:
        return ChangeEffect(found, gaps=("It was not applied, so nothing was granted under it.",))
    if not ctx.store.journals:
        return ChangeEffect(found, gaps=("This server keeps no journal: start it with DW_JOURNAL=true.",))
    grants, gaps = await _grants(ctx, found.applied_at_ms - BEFORE_MS, found.applied_at_ms)
    return ChangeEffect(found, effects(found.versions, present, grants), gaps)


async def _state(tx: Tx, namespace: str, change_set_id: str) -> tuple[ChangeSet, dict[str, int]]:
    found = await view(tx, await require(tx, namespace, change_set_id))
    return found.change_set, dict(found.state.versions)


async def _grants(
    ctx: EngineContext, since_ms: int, applied_at_ms: int
) -> tuple[Sequence[CitingGrant], Sequence[str]]:
    """The grants since a time, page by page, and what is missing of them."""
    found: list[CitingGrant] = []
    after = 0
    while len(found) < GRANTS_READ_MAX:
        lines = await ctx.store.read(lambda tx: _page(tx, since_ms, after), long=True)  # noqa: B023
        found += [_decode(line) for _, line in lines]
        if len(lines) < _PAGE:
            break
        after = lines[-1][0]
    gaps = []
    if not await ctx.store.read(lambda tx: tx.journal.any_before(applied_at_ms)):
        gaps.append("The journal begins after the apply: earlier grants are not counted.")
    if len(found) >= GRANTS_READ_MAX:
        gaps.append(f"Only the first {GRANTS_READ_MAX:,} grants were read.")
    return found, gaps


async def _page(tx: Tx, since_ms: int, after: int) -> Sequence[tuple[int, str]]:
    return await tx.journal.between(since_ms, tx.now_ms, "granted", after, _PAGE)
