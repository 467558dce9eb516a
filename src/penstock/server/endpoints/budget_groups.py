"""Budget groups: queues that share limits because they lean on one downstream."""

from __future__ import annotations

from penstock.core.admission import EVERYWHERE, GROUP_NAME_MAX
from penstock.core.limits import Part, group_parts
from penstock.core.permissions import RouteFamily, authorize
from penstock.engine import admission, limits
from penstock.engine.admission import ScopeAsk
from penstock.engine.limits import GroupView
from penstock.server.endpoints.limiting import scope_ask
from penstock.server.operation import Answer, Body, Call, text_path
from penstock.wire import limits as shown
from penstock.wire.limit_requests import ChangeGroupLimits, ReadGroup, ReadGroupHistory
from penstock.wire.parsing import refuse


async def list_all(call: Call) -> Answer:
    found = await limits.groups(call.house, call.namespace)
    return Answer(
        {
            "namespace": call.namespace,
            "budget_groups": [
                _identity(call, view)
                | {part.value: shown.scope_in_a_list(each) for part, each in view.parts.items()}
                for view in found
            ],
        }
    )


async def read(call: Call) -> Answer:
    query: ReadGroup = call.query
    return await answer(call, query.scope)


async def change(call: Call) -> Answer:
    request: ChangeGroupLimits = call.body
    ask = scope_ask(request, await limits.now_ms(call.house))
    await configure(call, request.scope, request.kind, ask)
    return await answer(call, request.scope)


async def history(call: Call) -> Answer:
    query: ReadGroupHistory = call.query
    changes = await admission.history(call.house, _scope(call, query.scope, query.kind), query.limit)
    return Answer(
        {
            "budget_group": _group(call),
            "scope": query.scope,
            "kind": query.kind,
            "changes": [shown.change(each) for each in changes],
        }
    )


async def configure(call: Call, scope: str, kind: str, ask: ScopeAsk) -> None:
    """Change a group. What all namespaces share is changed by those who may change the cluster."""
    assert call.principal is not None, "only who is known may change limits"
    if scope == "global":
        authorize(call.principal, RouteFamily.SYSTEM)
    await admission.configure(call.house, _scope(call, scope, kind), ask, call.author)


async def answer(call: Call, scope: str) -> Answer:
    view = await limits.of_group(call.house, _owner(call, scope), _group(call))
    parts = {part.value: shown.scope(each) for part, each in view.parts.items()}
    return Answer(_identity(call, view) | parts)


def _identity(call: Call, view: GroupView) -> Body:
    return {
        "budget_group": view.group,
        "scope": "global" if view.namespace == EVERYWHERE else "namespace",
        "namespace": call.namespace,
        "task_queues": [shown.member(each) for each in view.members],
    }


def _scope(call: Call, scope: str, kind: str) -> str:
    parts = group_parts(_owner(call, scope), _group(call))
    if Part(kind) not in parts:
        raise refuse("kind", "must be all: a group that namespaces share counts both kinds together")
    return parts[Part(kind)]


def _owner(call: Call, scope: str) -> str:
    return EVERYWHERE if scope == "global" else call.namespace


def _group(call: Call) -> str:
    name = text_path(call, "group", GROUP_NAME_MAX)
    if "/" in name or ":" in name:
        raise refuse("group", "must hold neither a slash nor a colon")
    return name
