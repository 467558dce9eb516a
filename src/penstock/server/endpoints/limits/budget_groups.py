"""Budget groups: queues that share limits because they call the same downstream service."""

from __future__ import annotations

from penstock.core.limits.admission import EVERYWHERE, GROUP_NAME_MAX
from penstock.core.operations.limits_view import LimitPart, group_parts
from penstock.core.permissions import RouteFamily, authorize
from penstock.engine.limits import admission, limit_usage
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.limit_usage import BudgetGroupView
from penstock.server.endpoints.limits.limit_changes import parse_scope_limits
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire.limits import limits as wire
from penstock.wire.limits.limit_requests import ChangeGroupLimits, ReadGroup, ReadGroupHistory
from penstock.wire.request_parser import field_error


async def list_all(call: OperationCall) -> Response:
    found = await limit_usage.groups(call.ctx, call.namespace)
    return Response(
        {
            "namespace": call.namespace,
            "budget_groups": [
                _identity(call, view)
                | {part.value: wire.scope_summary(each) for part, each in view.parts.items()}
                for view in found
            ],
        }
    )


async def read(call: OperationCall) -> Response:
    query: ReadGroup = call.query
    return await group_response(call, query.scope)


async def change(call: OperationCall) -> Response:
    request: ChangeGroupLimits = call.body
    await configure(call, request.scope, request.kind, await parse_scope_limits(call.ctx, request))
    return await group_response(call, request.scope)


async def history(call: OperationCall) -> Response:
    query: ReadGroupHistory = call.query
    changes = await admission.history(call.ctx, _scope(call, query.scope, query.kind), query.limit)
    return Response(
        {
            "budget_group": _group(call),
            "scope": query.scope,
            "kind": query.kind,
            "changes": [wire.change(each) for each in changes],
        }
    )


async def configure(call: OperationCall, scope: str, kind: str, update: ScopeUpdate) -> None:
    """Change the limits of a group; a global one needs the role that may change the cluster."""
    assert call.principal is not None, "operations that change limits are authenticated"
    if scope == "global":
        authorize(call.principal, RouteFamily.SYSTEM)
    await admission.configure(call.ctx, _scope(call, scope, kind), update, call.author)


async def group_response(call: OperationCall, scope: str) -> Response:
    view = await limit_usage.of_group(call.ctx, _owner(call, scope), _group(call))
    parts = {part.value: wire.scope(each) for part, each in view.parts.items()}
    return Response(_identity(call, view) | parts)


def _identity(call: OperationCall, view: BudgetGroupView) -> Body:
    return {
        "budget_group": view.group,
        "scope": "global" if view.namespace == EVERYWHERE else "namespace",
        "namespace": call.namespace,
        "task_queues": [wire.member(each) for each in view.members],
    }


def _scope(call: OperationCall, scope: str, kind: str) -> str:
    parts = group_parts(_owner(call, scope), _group(call))
    if LimitPart(kind) not in parts:
        raise field_error("kind", "must be all: a global group counts both kinds of tasks together")
    return parts[LimitPart(kind)]


def _owner(call: OperationCall, scope: str) -> str:
    return EVERYWHERE if scope == "global" else call.namespace


def _group(call: OperationCall) -> str:
    name = text_path(call, "group", GROUP_NAME_MAX)
    if "/" in name or ":" in name:
        raise field_error("group", "must contain neither a slash nor a colon")
    return name
