"""What a change set is compared with: the present values, versions and wanted approvals of what it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from penstock.core.limits.admission import Admission, queue_of_scope
from penstock.core.limits.change_approvals import (
    ApprovalVerdict,
    approvals_wanted,
    is_everywhere,
    lacking,
    plan_hash,
    verdicts,
)
from penstock.core.limits.change_sets import (
    ChangeSet,
    ChangeSetState,
    Current,
    ItemTarget,
    KeySetting,
    MovedItem,
    moved,
    setting_of,
    setting_of_key,
    taken_over,
)
from penstock.core.limits.policies import LimitSetting, Policy
from penstock.core.model import Queue, TaskKind
from penstock.core.permissions import Principal, RouteFamily, authorize
from penstock.engine.limits.policies import find_queue
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx


class PresentState(Struct, frozen=True):
    """The present state of the scopes that a change set names, read at one moment."""

    current: Current
    versions: Mapping[str, int]
    """By scope."""
    wanted: int
    """How many approvals a change of all these scopes needs."""
    now_ms: int


class ChangeSetView(Struct, frozen=True):
    """A change set, and the present state of what it changes."""

    change_set: ChangeSet
    state: PresentState

    @property
    def current(self) -> Current:
        return self.state.current

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

    @property
    def plan(self) -> str:
        """Names what an apply would do now."""
        return plan_hash(self.change_set, self.state.versions)

    @property
    def verdicts(self) -> Sequence[ApprovalVerdict]:
        return verdicts(self.change_set, self.state.versions, self.state.now_ms)

    @property
    def lacking(self) -> int:
        """How many approvals are missing for an apply now."""
        return lacking(self.change_set, self.state.wanted, self.state.versions, self.state.now_ms)


def check_may_change(principal: Principal, scopes: Iterable[str]) -> None:
    """Raise `Forbidden` for limits of all namespaces without the role that may change the cluster."""
    if any(is_everywhere(scope) for scope in scopes):
        authorize(principal, RouteFamily.SYSTEM)


def scopes_of(targets: Iterable[ItemTarget]) -> Sequence[str]:
    """The scopes of settings, in order."""
    return sorted({each.scope for each in targets})


def queues_of(targets: Iterable[ItemTarget]) -> dict[str, tuple[str, str, TaskKind]]:
    """The queues among the scopes of settings, in order of their scopes."""
    found = {}
    for scope in scopes_of(targets):
        queue = queue_of_scope(scope)
        if queue is not None:
            found[scope] = (queue[0], queue[1], TaskKind(queue[2]))
    return found


async def present(tx: Tx, targets: Iterable[ItemTarget]) -> PresentState:
    """The present state of settings, read without locks."""
    targets = list(targets)
    queues = {scope: await find_queue(tx, *queue) for scope, queue in queues_of(targets).items()}
    return await state_of(tx, targets, queues, await tx.scopes.admission())


async def state_of(
    tx: Tx, targets: Sequence[ItemTarget], queues: Mapping[str, Queue], limits: Admission
) -> PresentState:
    """The state of settings of these queues and limits; settings that expired are unset."""
    keys: dict[str, list[str]] = {}
    for target in targets:
        if target.key is not None:
            keys.setdefault(target.scope, []).append(target.key)
    of_keys = {
        scope: await tx.policies.key_settings(queues[scope].queue_id, sorted(set(names)))
        for scope, names in keys.items()
    }
    policies = {scope: _policy(scope, queues, limits) for scope in scopes_of(targets)}
    current = {}
    for target in targets:
        if target.key is not None:
            settings = of_keys[target.scope].get(target.key)
            current[target] = setting_of_key(settings, KeySetting(target.setting))
        else:
            policy = policies[target.scope].at(tx.now_ms)
            current[target] = setting_of(policy, LimitSetting(target.setting))
    versions = {scope: policy.version for scope, policy in policies.items()}
    return PresentState(current, versions, approvals_wanted(policies, limits, tx.now_ms), tx.now_ms)


def _policy(scope: str, queues: Mapping[str, Queue], limits: Admission) -> Policy:
    queue, row = queues.get(scope), limits.row(scope)
    if queue is not None:
        return queue.policy
    return Policy() if row is None else row.policy


async def view(tx: Tx, found: ChangeSet) -> ChangeSetView:
    """A change set with the present state of what it changes, read without locks."""
    return ChangeSetView(found, await present(tx, [each.target for each in found.items]))


async def lock(tx: Tx, namespace: str, change_set_id: str, principal: Principal) -> ChangeSet:
    """Lock a change set, for somebody who may change all that it changes."""
    await require(tx, namespace, change_set_id)
    found = await tx.change_sets.lock(change_set_id)
    assert found is not None, "change sets are never deleted while their namespace exists"
    check_may_change(principal, [each.target.scope for each in found.items])
    return found


async def require(tx: Tx, namespace: str, change_set_id: str) -> ChangeSet:
    """A change set of the namespace; raises `NotFound` if there is none."""
    found = await tx.change_sets.get(namespace, change_set_id)
    if found is None:
        raise NotFound(
            Reason.CHANGE_SET_NOT_FOUND,
            f"There is no change set {change_set_id!r} in namespace {namespace!r}. List those there are.",
        )
    return found


def wrong_state(found: ChangeSet, verb: str, advice: str) -> Conflict:
    """The refusal to do something with a change set that is not in the state for it."""
    return Conflict(
        Reason.CHANGE_SET_STATE_CONFLICT,
        f"The change set is {found.state.value}, so it cannot be {verb}. {advice}",
        state=found.state.value,
    )


def check_plan(found: ChangeSetView, reviewed: str | None) -> None:
    """Raise `Conflict` if the plan is not the one that somebody reviewed."""
    if reviewed is not None and reviewed != found.plan:
        raise Conflict(
            Reason.CHANGE_PLAN_MOVED,
            f"The plan is {found.plan} now, not {reviewed}: the change set, or a setting beside those that it changes, "
            "is not as it was. Read the plan again.",
            plan=found.plan,
        )
