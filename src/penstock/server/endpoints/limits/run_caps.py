"""Caps on runs: read, change, change log."""

from __future__ import annotations

from msgspec import UNSET

from penstock.core.limits.policies import RUN_SETTINGS
from penstock.core.limits.run_caps import RunScope, RunScopeKind
from penstock.engine.limits import run_caps
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import SettingChange
from penstock.server.endpoints.limits.limit_changes import parse_end
from penstock.server.endpoints.limits.queue_setting_changes import stored_value
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.limits import run_caps as wire
from penstock.wire.limits.run_caps import ChangeRunCap, ReadRunCap, ReadRunCapHistory
from penstock.wire.request_parser import field_error

_NAMELESS = (RunScopeKind.NAMESPACE, RunScopeKind.EACH_KEY)


async def list_all(call: OperationCall) -> Response:
    views = await run_caps.read_all(call.ctx, call.namespace)
    return Response({"namespace": call.namespace, "run_limits": [wire.summary(each) for each in views]})


async def read(call: OperationCall) -> Response:
    query: ReadRunCap = call.query
    return await _response(call, _scope(call, query.name))


async def change(call: OperationCall) -> Response:
    request: ChangeRunCap = call.body
    scope = _scope(call, request.name)
    asked = {each: getattr(request, each.value) for each in RUN_SETTINGS}
    settings = {
        each: SettingChange(stored_value(each, value)) for each, value in asked.items() if value is not UNSET
    }
    if not settings:
        raise field_error("max_open_runs", "must be given, or surplus: there is nothing to change")
    ends_at_ms = await parse_end(call.ctx, request)
    update = ScopeUpdate(settings, request.reason, ends_at_ms, request.if_version)
    await run_caps.configure(call.ctx, scope, update, call.author)
    return await _response(call, scope)


async def history(call: OperationCall) -> Response:
    query: ReadRunCapHistory = call.query
    scope = _scope(call, query.name)
    changes = await run_caps.history(call.ctx, scope, query.limit)
    return Response(
        {
            "scope": scope.kind.value,
            "name": scope.value or None,
            "changes": [wire.change(each) for each in changes],
        }
    )


async def _response(call: OperationCall, scope: RunScope) -> Response:
    return Response(wire.cap(await run_caps.read(call.ctx, scope)))


def _scope(call: OperationCall, name: str | None) -> RunScope:
    """The scope that the path and the request name."""
    word = text_path(call, "scope")
    if word not in list(RunScopeKind):
        raise field_error("scope", f"must be one of {', '.join(RunScopeKind)}")
    kind = RunScopeKind(word)
    if (name is None) != (kind in _NAMELESS):
        problem = f"is not for the scope {word}" if name else f"must name the {word.replace('_', ' ')}"
        raise field_error("name", problem)
    return RunScope(call.namespace, kind, name or "")
