"""Approve a change set, and take an approval back. The rules are in `core.limits.change_approvals`."""

from __future__ import annotations

from penstock.core.limits import change_approvals
from penstock.core.permissions import Principal
from penstock.engine.context import EngineContext
from penstock.engine.limits.change_set_state import ChangeSetView, check_plan, lock, view, wrong_state
from penstock.errors import Forbidden, Reason
from penstock.ports.store import Tx


async def approve(
    ctx: EngineContext, namespace: str, change_set_id: str, principal: Principal, plan: str | None = None
) -> ChangeSetView:
    """Record the caller's approval of the plan as it is now.

    Args:
        ctx: The server.
        namespace: The namespace of the change set.
        change_set_id: Its id.
        principal: Who approves; not its author.
        plan: The hash of the plan that they reviewed; another one is refused. None: whatever it is.
    """

    async def operation(tx: Tx) -> ChangeSetView:
        found = await view(tx, await lock(tx, namespace, change_set_id, principal))
        if not found.change_set.may_be_applied:
            raise wrong_state(found.change_set, "approved", "Only one that waits for its apply can be.")
        if principal.credential == found.change_set.author:
            raise Forbidden(
                Reason.OWN_CHANGE_SET,
                f"{principal.credential} is the author of this change set, so somebody else has to approve it.",
                author=found.change_set.author,
            )
        check_plan(found, plan)
        done = change_approvals.approved(
            found.change_set, principal.credential, found.state.versions, tx.now_ms
        )
        tx.change_sets.save(done)
        return ChangeSetView(done, found.state)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")


async def unapprove(
    ctx: EngineContext, namespace: str, change_set_id: str, principal: Principal
) -> ChangeSetView:
    """Take the caller's approval back; without one nothing changes."""

    async def operation(tx: Tx) -> ChangeSetView:
        found = await lock(tx, namespace, change_set_id, principal)
        if not found.may_be_applied:
            raise wrong_state(found, "changed", "Its approvals are history.")
        done = change_approvals.unapproved(found, principal.credential)
        tx.change_sets.save(done)
        return await view(tx, done)

    return await ctx.store.transact(operation, key=f"change sets:{namespace}")
