"""Change sets: propose, edit, plan, approve, apply, withdraw and roll back several settings of limits as one."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Final, TypeVar

from penstock.core.limits.admission import EVERYWHERE, queue_scope
from penstock.core.limits.change_sets import ChangeSetState, ItemTarget, KeySetting, Stored
from penstock.core.operations.limits_view import LimitPart, Parts, cluster_parts, group_parts, namespace_parts
from penstock.core.permissions import Principal
from penstock.engine.limits import change_approvals, change_effects, change_plans, change_sets
from penstock.engine.limits.change_set_state import ChangeSetView
from penstock.engine.limits.change_sets import ApplyRequest, ChangeSetRequest
from penstock.engine.limits.policies import KeySettingsChange, Unset
from penstock.errors import Conflict, InvalidInput, Reason, ValidationFailed
from penstock.ports.tables.visibility import PageStart
from penstock.server.endpoints.limits.limit_changes import parse_scope_limits
from penstock.server.endpoints.limits.queue_setting_changes import parse_queue_settings
from penstock.server.endpoints.page_tokens import decode_page_start, encode_page_start
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire.limits import change_plans as plan_wire
from penstock.wire.limits import change_sets as wire
from penstock.wire.limits.change_sets import (
    ApplyChangeSet,
    ApproveChangeSet,
    ListChangeSets,
    ProposeChangeSet,
    RollBackChangeSet,
)
from penstock.wire.limits.limit_paths import LimitTarget, check_setting, queue_settings_body
from penstock.wire.limits.limit_requests import ChangeGroupLimits, ChangeOwnLimits, ChangeScopeLimits
from penstock.wire.request_parser import parse_strict
from penstock.wire.requests import ConfigureQueue, RequestModel

_LOG: Final = logging.getLogger("penstock.changes")
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
    view = await change_sets.propose(call.ctx, call.namespace, await _request(call), _principal(call))
    return _detailed(view, status=201)


async def edit(call: OperationCall) -> Response:
    return _detailed(
        await change_sets.edit(call.ctx, call.namespace, _id(call), await _request(call), _principal(call))
    )


async def _request(call: OperationCall) -> ChangeSetRequest:
    request: ProposeChangeSet = call.body
    lasts_ms = None if request.expires_in_seconds is None else request.expires_in_seconds * 1_000
    asked = await _asked(call, request)
    return ChangeSetRequest(asked, request.reason, _ms(request.apply_at), lasts_ms)


async def read(call: OperationCall) -> Response:
    return _detailed(await change_sets.get(call.ctx, call.namespace, _id(call)))


async def plan(call: OperationCall) -> Response:
    found = await change_plans.plan(call.ctx, call.namespace, _id(call))
    return Response(_body(found.view) | plan_wire.plan(found.view.change_set, found.checks))


async def effect(call: OperationCall) -> Response:
    found = await change_effects.effect(call.ctx, call.namespace, _id(call))
    return Response(wire.effect(found.change_set, found.scopes, found.gaps))


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


async def approve(call: OperationCall) -> Response:
    request: ApproveChangeSet = call.body
    return _detailed(
        await change_approvals.approve(call.ctx, call.namespace, _id(call), _principal(call), request.plan)
    )


async def unapprove(call: OperationCall) -> Response:
    return _detailed(await change_approvals.unapprove(call.ctx, call.namespace, _id(call), _principal(call)))


async def apply(call: OperationCall) -> Response:
    body: ApplyChangeSet = call.body
    request = ApplyRequest(_ms(body.apply_at), body.plan, body.break_glass)
    if request.at_ms is not None:
        if request.break_glass is not None:
            raise ValidationFailed({"break_glass": ["applies it now: leave apply_at out"]})
        view = await change_sets.schedule(call.ctx, call.namespace, _id(call), _principal(call), request)
        return _detailed(view)
    view = await change_sets.apply(call.ctx, call.namespace, _id(call), _principal(call), request)
    if view.change_set.may_be_applied:
        raise _stale(view)
    glass = view.change_set.break_glass
    if glass is not None:
        _LOG.warning(
            "break-glass: %s applied change set %s of namespace %s without %d approvals: %s",
            *(glass.by, view.change_set.change_set_id, call.namespace, glass.lacked, glass.reason),
        )
    return _detailed(view)


async def withdraw(call: OperationCall) -> Response:
    return _detailed(await change_sets.withdraw(call.ctx, call.namespace, _id(call), _principal(call)))


async def roll_back(call: OperationCall) -> Response:
    request: RollBackChangeSet = call.body
    view = await change_sets.roll_back(call.ctx, call.namespace, _id(call), request.reason, _principal(call))
    return _detailed(view, status=201)


def _stale(view: ChangeSetView) -> Conflict:
    first, all_moved = view.moved[0], [wire.moved_item(each) for each in view.moved]
    who = f"by {first.now.author}" if first.now.author else "because it expired or was unset"
    return Conflict(
        Reason.CHANGE_SET_STALE,
        f"{len(all_moved)} of {len(view.change_set.items)} settings moved after this change set was proposed, first "
        f"{wire.described(first.item.target)}, {who}. Nothing was changed. Propose the change anew.",
        moved=all_moved,
    )


def _principal(call: OperationCall) -> Principal:
    assert call.principal is not None, "operations that change something are authenticated"
    return call.principal


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1_000)


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
        own = _parsed(LimitTarget("namespace"), request.namespace_limits, ChangeOwnLimits)
        found += await _of_scope(call, namespace_parts(call.namespace), own)
    if request.cluster:
        cluster = _parsed(LimitTarget("cluster"), request.cluster, ChangeOwnLimits)
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


def _detailed(view: ChangeSetView, *, status: int = 200) -> Response:
    return Response(_body(view), status=status)


def _body(view: ChangeSetView) -> Body:
    body = wire.detailed(view.change_set, view.current, view.moved)
    if not view.change_set.may_be_applied:
        return body | {"plan": None, "approvals": None}
    return body | {
        "plan": view.plan,
        "approvals": wire.approvals(view.state.wanted, view.lacking, view.verdicts),
    }


def _id(call: OperationCall) -> str:
    return text_path(call, "change_set_id")
