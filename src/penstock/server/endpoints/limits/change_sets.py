"""Change sets: propose, read, apply, withdraw and roll back several settings of limits as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from penstock.core.limits.admission import EVERYWHERE, namespace_of, queue_of_scope, queue_scope
from penstock.core.limits.change_sets import ChangeSetState, ItemTarget, KeySetting, Stored
from penstock.core.operations.limits_view import LimitPart, Parts, cluster_parts, group_parts, namespace_parts
from penstock.core.permissions import RouteFamily, authorize
from penstock.engine.limits import change_sets
from penstock.engine.limits.change_sets import ChangeSetRequest, ChangeSetView
from penstock.engine.limits.policies import KeySettingsChange, Unset
from penstock.errors import Conflict, InvalidInput, Reason, ValidationFailed
from penstock.ports.tables.visibility import PageStart
from penstock.server.endpoints.limits.limit_changes import parse_scope_limits
from penstock.server.endpoints.limits.queue_setting_changes import parse_queue_settings
from penstock.server.endpoints.page_tokens import decode_page_start, encode_page_start
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.limits import change_sets as wire
from penstock.wire.limits.change_sets import ListChangeSets, ProposeChangeSet, RollBackChangeSet
from penstock.wire.limits.limit_paths import LimitTarget, check_setting, queue_settings_body
from penstock.wire.limits.limit_requests import ChangeGroupLimits, ChangeScopeLimits
from penstock.wire.request_parser import parse_strict
from penstock.wire.requests import ConfigureQueue, RequestModel

S = TypeVar("S", bound=RequestModel)
_NO_ITEMS: Final = frozenset(
    {
        "worker_rps_limit",
        "clear_fairness_weight_overrides",
        "queue_rps_limit_reason",
        "fairness_key_rps_limit_reason",
    }
)
"""What a change of a queue may name beside settings with a value before and after."""


async def propose(call: OperationCall) -> Response:
    request: ProposeChangeSet = call.body
    asked = await _asked(call, request)
    _check_may_change(call, [target.scope for target in asked])
    apply_at_ms = None if request.apply_at is None else round(request.apply_at.timestamp() * 1_000)
    lasts_ms = None if request.expires_in_seconds is None else request.expires_in_seconds * 1_000
    view = await change_sets.propose(
        call.ctx, call.namespace, ChangeSetRequest(asked, request.reason, apply_at_ms, lasts_ms), call.author
    )
    return _plan(view, status=201)


async def read(call: OperationCall) -> Response:
    return _plan(await change_sets.get(call.ctx, call.namespace, _id(call)))


async def list_all(call: OperationCall) -> Response:
    query: ListChangeSets = call.query
    found = await change_sets.page(
        call.ctx,
        call.namespace,
        None if query.state is None else ChangeSetState(query.state),
        decode_page_start(query.next_page_token),
        query.page_size + 1,
    )
    page = found[: query.page_size]
    token = None
    if len(found) > len(page):
        token = encode_page_start(PageStart(page[-1].created_at_ms, page[-1].change_set_id))
    return Response(
        {
            "namespace": call.namespace,
            "change_sets": [wire.shown(each) for each in page],
            "next_page_token": token,
        }
    )


async def apply(call: OperationCall) -> Response:
    found = await change_sets.get(call.ctx, call.namespace, _id(call))
    _check_may_change(call, [each.target.scope for each in found.change_set.items])
    view = await change_sets.apply(call.ctx, call.namespace, _id(call), call.author)
    if view.change_set.may_be_applied:
        raise _stale(view)
    return _plan(view)


async def withdraw(call: OperationCall) -> Response:
    return _plan(await change_sets.withdraw(call.ctx, call.namespace, _id(call), call.author))


async def roll_back(call: OperationCall) -> Response:
    request: RollBackChangeSet = call.body
    view = await change_sets.roll_back(call.ctx, call.namespace, _id(call), request.reason, call.author)
    return _plan(view, status=201)


def _stale(view: ChangeSetView) -> Conflict:
    first, all_moved = view.moved[0], [wire.moved_item(each) for each in view.moved]
    who = f"by {first.now.author}" if first.now.author else "because it expired or was unset"
    return Conflict(
        Reason.CHANGE_SET_STALE,
        f"{len(all_moved)} of {len(view.change_set.items)} settings moved after this change set was proposed, first "
        f"{wire.described(first.item.target)}, {who}. Nothing was changed. Propose the change anew.",
        moved=all_moved,
    )


def _check_may_change(call: OperationCall, scopes: Sequence[str]) -> None:
    """Limits of all namespaces need the role that may change the cluster."""
    assert call.principal is not None, "operations that change something are authenticated"
    if any(queue_of_scope(scope) is None and namespace_of(scope) is None for scope in scopes):
        authorize(call.principal, RouteFamily.SYSTEM)


async def _asked(call: OperationCall, request: ProposeChangeSet) -> dict[ItemTarget, Stored]:
    """Each setting that the request names, with its new stored value."""
    found: list[tuple[ItemTarget, Stored]] = []
    for name, settings in request.queues.items():
        found += _of_queue(call.namespace, name, settings)
    for name, settings in request.groups.items():
        group = _parsed(LimitTarget("group", name), settings, ChangeGroupLimits)
        owner = EVERYWHERE if group.scope == "global" else call.namespace
        found += await _of_scope(call, group_parts(owner, name), group)
    if request.namespace_limits:
        own = _parsed(LimitTarget("namespace"), request.namespace_limits, ChangeScopeLimits)
        found += await _of_scope(call, namespace_parts(call.namespace), own)
    if request.cluster:
        cluster = _parsed(LimitTarget("cluster"), request.cluster, ChangeScopeLimits)
        found += await _of_scope(call, cluster_parts(), cluster)
    return dict(found)


def _of_queue(namespace: str, name: str, settings: dict[str, Any]) -> list[tuple[ItemTarget, Stored]]:
    request = _parsed(LimitTarget("queue", name), settings, ConfigureQueue)
    update, scope = parse_queue_settings(request), queue_scope(namespace, name, request.task_queue_type)
    found = [
        (ItemTarget(scope, setting.value), _stored(change.value))
        for setting, change in update.settings.items()
    ]
    for key, change in update.keys.items():
        found += [(ItemTarget(scope, setting.value, key), value) for setting, value in _of_key(change)]
    return found


def _of_key(change: KeySettingsChange) -> list[tuple[KeySetting, Stored]]:
    found: list[tuple[KeySetting, Stored]] = [
        (setting, _stored(value))
        for setting, value in (
            (KeySetting.WEIGHT, change.weight_milli),
            (KeySetting.RATE, change.rate_micro),
            (KeySetting.LEASE_CAP, change.lease_cap),
        )
        if value is not None
    ]
    if change.paused is not None:
        found.append((KeySetting.PAUSED, int(change.paused) or None))
    return found


async def _of_scope(
    call: OperationCall, parts: Parts, request: ChangeScopeLimits
) -> list[tuple[ItemTarget, Stored]]:
    part = LimitPart(request.kind)
    if part not in parts:
        raise ValidationFailed({"kind": ["must be all: a global group counts both kinds of tasks together"]})
    update = await parse_scope_limits(call.ctx, request)
    return [
        (ItemTarget(parts[part], setting.value), _stored(change.value))
        for setting, change in update.settings.items()
    ]


def _parsed(target: LimitTarget, settings: dict[str, Any], shape: type[S]) -> S:
    """The settings of one target as the request that changes them; errors name the target."""
    for name in settings:
        try:
            check_setting(target, name)
        except InvalidInput as unknown:
            raise ValidationFailed({f"{target}.{name}": [unknown.message]}, unknown.message) from None
        if name in _NO_ITEMS:
            raise ValidationFailed(
                {f"{target}.{name}": ["cannot be part of a change set; change it by itself"]}
            )
    body = queue_settings_body(settings) if target.scope == "queue" else settings
    try:
        return parse_strict(body, shape)
    except ValidationFailed as refused:
        raise ValidationFailed(
            {f"{target}.{name}": problems for name, problems in refused.details["errors"].items()}
        ) from None


def _stored(value: int | str | Unset | None) -> Stored:
    return None if isinstance(value, Unset) else value


def _plan(view: ChangeSetView, *, status: int = 200) -> Response:
    return Response(wire.plan(view.change_set, view.current, view.moved), status=status)


def _id(call: OperationCall) -> str:
    return text_path(call, "change_set_id")
