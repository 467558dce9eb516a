"""What a page may ask for: the operations of the public API, called in process.

A page reads with `View.read`, which finds the operation by its name in the table, checks the visitor's role, parses
the parameters as the HTTP API does, and returns the body of its response. So a page has no number that the API does
not have, and a role sees no more here than there. A change goes through `Act.change` the same way.

Viewers read what operators read. Payloads are removed from every body before a page gets it, unless the setting
`DW_UI_VIEWER_PAYLOADS` allows them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec

from penstock.core.permissions import ACCESS, Principal, Role, forbidden
from penstock.engine.context import EngineContext
from penstock.errors import Forbidden
from penstock.server.dashboard.sessions import Visitor
from penstock.server.handler import ServerContext
from penstock.server.operation import Body, Operation, OperationCall
from penstock.server.operations.table import OPERATIONS
from penstock.wire.request_parser import parse_parameters, parse_strict
from penstock.wire.requests import EmptyRequest

_OPERATOR: Final = frozenset({Role.OPERATOR})
_NO_FIELDS: Final = EmptyRequest()
_PAYLOADS: Final = frozenset(
    {
        "arguments",
        "details",
        "error",
        "failure",
        "input",
        "last_heartbeat",
        "last_workflow_task_error",
        "last_workflow_task_stack_trace",
        "memo",
        "output",
        "payload",
        "payloads",
        "result",
        "search_attributes",
    }
)
"""Fields of responses that carry what users put in, or what their code said."""
_TRACES: Final = frozenset({"stack_trace", "last_workflow_task_stack_trace"})
"""Fields that carry lines of users' code, which viewers see even less than payloads."""


@cache
def _operations() -> Mapping[str, Operation]:
    return {each.name: each for each in OPERATIONS}


@dataclass(frozen=True, slots=True)
class View:
    """One reading of the server, in one snapshot, with the eyes of one role."""

    server: ServerContext
    ctx: EngineContext
    principal: Principal
    namespace: str
    now_ms: int
    """The time of the snapshot, by the clock of the store."""
    path: Mapping[str, str]
    query: Mapping[str, str]
    sees_payloads: bool = True

    async def read(self, operation: str, query: Mapping[str, str] | None = None, **path: str) -> Body:
        """The body of a response of the API.

        Args:
            operation: The name of a GET operation.
            query: Its query parameters, as text.
            path: The parameters of its path.

        Raises what the operation raises, and `Forbidden` for a role that may not use it.
        """
        found = _operations()[operation]
        assert found.method == "GET", "a page only reads"
        acts_as = _OPERATOR if self.principal.role is Role.VIEWER else self.principal.acts_as
        _check_role(found, self.principal, acts_as)
        call = _call(self.server, self.ctx, self.principal, self.namespace, found, path, query or {}, {})
        response = await found.handle(call)
        body: Body = response.body
        if not self.sees_payloads:
            body = without_payloads(body)
        elif self.principal.role is Role.VIEWER:
            body = without_payloads(body, _TRACES)
        return body

    async def try_read(
        self, operation: str, query: Mapping[str, str] | None = None, **path: str
    ) -> tuple[Body | None, Forbidden | None]:
        """A body, or the error for a role that may not have it: the panel then says who may."""
        try:
            return await self.read(operation, query, **path), None
        except Forbidden as error:
            return None, error


@dataclass(frozen=True, slots=True)
class Act:
    """One change that a visitor asks for."""

    server: ServerContext
    visitor: Visitor
    namespace: str
    path: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)

    async def change(
        self,
        operation: str,
        body: Mapping[str, Any] | None = None,
        *,
        nulls: Collection[str] = (),
        **path: str,
    ) -> Body:
        """Carry out an operation that changes something, with the visitor's name as its author.

        Args:
            operation: The name of the operation.
            body: Its body as JSON values; None and absent fields are left out.
            nulls: The fields in which None is a value, such as the build of workers that have none.
            path: The parameters of its path.
        """
        found = _operations()[operation]
        _check_role(found, self.visitor.principal, self.visitor.principal.acts_as)
        document = {name: value for name, value in (body or {}).items() if value is not None or name in nulls}
        call = _call(
            self.server,
            self.server.ctx,
            self.visitor.principal,
            self.namespace,
            found,
            path,
            {},
            document,
        )
        response = await found.handle(call)
        return response.body if isinstance(response.body, dict) else {}

    async def read(self, operation: str, query: Mapping[str, str] | None = None, **path: str) -> Body:
        """The body of a GET operation, as it is now; not of the snapshot of a page.

        Args:
            operation: The name of the operation.
            query: Its query parameters, as text.
            path: The parameters of its path.
        """
        found = _operations()[operation]
        assert found.method == "GET", "a change is not read"
        principal = self.visitor.principal
        _check_role(found, principal, principal.acts_as)
        server = self.server
        call = _call(server, server.ctx, principal, self.namespace, found, path, query or {}, {})
        body: Body = (await found.handle(call)).body
        return body

    def text(self, name: str) -> str | None:
        """A field of the form, without surrounding space; None if it is empty."""
        return self.form.get(name, "").strip() or None


def _check_role(operation: Operation, principal: Principal, acts_as: frozenset[Role]) -> None:
    roles = ACCESS[operation.family].roles
    if roles is not None and not acts_as & roles:
        raise forbidden(principal, roles)


def _call(
    server: ServerContext,
    ctx: EngineContext,
    principal: Principal,
    namespace: str,
    operation: Operation,
    path: Mapping[str, str],
    query: Mapping[str, str],
    document: Body,
) -> OperationCall:
    parsed: Any = _NO_FIELDS
    if operation.query is not EmptyRequest:
        parsed = parse_parameters(dict(query), operation.query)
    body: Any = _NO_FIELDS if operation.body is None else parse_strict(document, operation.body)
    return OperationCall(
        ctx=ctx,
        dispatcher=server.dispatcher,
        metrics=server.metrics,
        principal=principal,
        namespace=namespace,
        path=path,
        query=parsed,
        body=body,
        raw=msgspec.json.encode(document) if document else b"",
        document=document,
        headers={},
    )


def without_payloads(body: Any, hidden: frozenset[str] = _PAYLOADS) -> Any:
    """A copy of a body in which every payload is null.

    Args:
        body: A body, or a part of it.
        hidden: The names of the fields to empty.
    """
    if isinstance(body, msgspec.Raw):
        return without_payloads(msgspec.json.decode(body), hidden)
    if isinstance(body, dict):
        return {
            name: None if name in hidden else without_payloads(value, hidden) for name, value in body.items()
        }
    return [without_payloads(each, hidden) for each in body] if isinstance(body, list) else body
