"""The request pipeline: size, media type, JSON, authentication, role, version, namespace, fields, handler, response.

The order of the checks is part of the contract. A caller with the wrong role cannot find out whether a namespace
exists, and no namespace is looked up for a caller that is not authenticated. What follows from the operation alone is
computed when the server starts, so that a request takes one straight line:

    Endpoint.__call__         measures, and turns errors into responses
      _handle                 reads the request (`request_reader`), sets the deadline of a poll
        _call                 authenticates (`auth.access`), parses the fields (`wire.request_parser`)
          Operation.handle    the endpoint itself, cancelled if the client of a long poll disconnects
      ResponseWriter.write    (`response_writer`)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from msgspec.structs import replace as replace_fields

from penstock.core.attribution import caller_of
from penstock.core.permissions import ACCESS, Principal, RouteFamily, forbidden
from penstock.core.scheduling.dispatch import PollStatus
from penstock.engine.context import EngineContext
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.engine.runtime.deadlines import SLACK_S, Deadline
from penstock.errors import InvalidInput, NotFound, PenstockError, Reason, ValidationFailed
from penstock.ports.clock import Clock
from penstock.server.auth.access import Authenticator, NamespaceCheck, is_namespace_name
from penstock.server.auth.signatures import AuthRequest
from penstock.server.auth.webhooks import VerifiedWebhook, WebhookReceiver
from penstock.server.external_payloads import prepared
from penstock.server.metrics import Metrics
from penstock.server.operation import Operation, OperationCall, Response
from penstock.server.operations.contract import CONTRACT_OPERATIONS
from penstock.server.problems import body_of, status_of
from penstock.server.request_reader import (
    ClientDisconnected,
    Receive,
    Scope,
    check_host,
    client_address,
    fold_headers,
    read_body,
    read_document,
    read_parameters,
)
from penstock.server.response_writer import ResponseWriter, Send
from penstock.server.versions import HEADERS, SERVED, version_error
from penstock.wire.request_parser import (
    UnknownField,
    has_no_required_field,
    parse,
    parse_parameters,
    parse_strict,
    unknown_fields,
    with_warnings,
)
from penstock.wire.requests import EmptyRequest, RequestModel

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_COMMON_QUERY_PARAMETERS = frozenset({"namespace"})
_NO_FIELDS: RequestModel = EmptyRequest()
log = structlog.get_logger("penstock.server")


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What all endpoints of a server share."""

    ctx: EngineContext
    dispatcher: Dispatcher
    authenticator: Authenticator
    webhooks: WebhookReceiver
    namespaces: NamespaceCheck
    clock: Clock
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request as read from its connection, before authentication."""

    request: AuthRequest
    document: object
    ignored: list[UnknownField]
    """Unknown fields of a contract operation, which are ignored and listed in `warnings`."""


class Endpoint:
    """Serves one row of the operations table."""

    def __init__(self, server: ServerContext, operation: Operation) -> None:
        self._server, self._operation = server, operation
        self._settings = server.ctx.settings
        self._contexts: dict[Principal, EngineContext] = {}
        self._roles = ACCESS[operation.family].roles
        self._plane = ACCESS[operation.family].plane
        self._namespaced = ACCESS[operation.family].namespaced
        self._version_header = HEADERS[self._plane].lower() if self._plane is not None else ""
        self._versions = SERVED[self._plane] if self._plane is not None else frozenset({""})
        if not operation.needs_version:
            self._versions |= {""}
        self._has_body = operation.method in _METHODS_WITH_BODY
        self._takes_payloads = (
            self._namespaced and self._has_body and not operation.takes_bytes and not operation.polls
        )
        listen = self._settings.listen
        self._hosts = listen.probe_hosts if operation.family is RouteFamily.HEALTH else listen.allowed_hosts
        self._bytes_max = self._settings.limits.payload_bytes_max
        if operation.takes_bytes:
            self._bytes_max = self._settings.external_storage.payload_bytes_max
        self._ignores_unknown = operation.name in CONTRACT_OPERATIONS
        self._all_optional = operation.body is not None and has_no_required_field(operation.body)
        self._writer = ResponseWriter(operation, self._plane, compresses=listen.compression_enabled)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ignored: list[UnknownField] = []
        status, started = 500, time.perf_counter()
        try:
            try:
                response = await self._handle(scope, receive, ignored)
            except ClientDisconnected:
                status = 499
                return
            except Exception as error:
                response = self._error_response(error, scope.get("path_params", {}))
            status = response.status
            if ignored and isinstance(response.body, dict):
                response = replace(response, body=_with_warnings(response.body, ignored))
            await self._writer.write(response, scope, send)
        finally:
            metrics, name = self._server.metrics, self._operation.name
            metrics.requests.labels(name, str(status)).inc()
            metrics.request_seconds.labels(name).observe(time.perf_counter() - started)

    async def _handle(self, scope: Scope, receive: Receive, ignored: list[UnknownField]) -> Response:
        headers = fold_headers(scope["headers"])
        check_host(headers, self._hosts)
        raw = await read_body(receive, headers, self._bytes_max)
        document = (
            read_document(headers, raw) if raw and self._has_body and not self._operation.takes_bytes else {}
        )
        if document == [] and self._all_optional:
            document = {}  # PHP encodes an object without fields as an empty list
        request = AuthRequest(
            method=str(scope["method"]),
            raw_path=scope.get("raw_path", b"").decode("latin-1"),
            raw_query=scope.get("query_string", b"").decode("latin-1"),
            headers=headers,
            body=raw,
            now_ms=self._server.clock.now_ms(),
        )
        incoming = _Incoming(request, document, ignored)
        if not self._operation.polls:
            return await self._call(scope, receive, incoming)
        # The deadline covers authentication too, so it is set from a body that is not validated yet.
        polls = self._settings.polls
        wait_ms = document.get("timeout_seconds") if isinstance(document, dict) else None
        wait_ms = wait_ms * 1000 if isinstance(wait_ms, int | float) else polls.poll_timeout_ms
        wait_ms = int(max(0, min(wait_ms, polls.poll_timeout_ms_max)))
        async with Deadline(wait_ms).kept(slack_s=2 * SLACK_S):
            return await self._call(scope, receive, incoming, wait_ms)

    async def _call(self, scope: Scope, receive: Receive, incoming: _Incoming, wait_ms: int = 0) -> Response:
        server, request, document = self._server, incoming.request, incoming.document
        address, webhook = client_address(scope, request.headers, self._settings.listen), None
        if self._operation.takes_webhooks:
            adapter = scope.get("path_params", {}).get("adapter", "")
            webhook = server.webhooks.receive(adapter, request, document, address)
        if webhook is None:
            principal = await self._authorized(request, address)
        else:
            principal, document = webhook.principal, webhook.document
        parameters = read_parameters(request.raw_query) if request.raw_query else {}
        if webhook is None:
            requested = request.headers.get("x-namespace") or parameters.get("namespace")
            namespace = await self._namespace(requested)
        else:
            namespace = await self._namespace_of(webhook)
        if self._takes_payloads:
            policy = server.namespaces.storage_policy(namespace)
            document = await prepared(
                server.ctx, namespace, policy, self._operation.name, document, request.body
            )
        query, body = self._parsed(parameters, document, incoming.ignored)
        call = OperationCall(
            ctx=self._ctx_of(principal),
            dispatcher=server.dispatcher,
            metrics=server.metrics,
            principal=principal,
            namespace=namespace,
            path=scope.get("path_params", {}),
            query=query,
            body=body,
            raw=request.body,
            document=document if isinstance(document, dict) else {},
            headers=request.headers,
            wait_ms=wait_ms,
        )
        if self._operation.waits:
            return await _run_until_disconnect(self._operation.handle(call), receive)
        return await self._operation.handle(call)

    def _ctx_of(self, principal: Principal | None) -> EngineContext:
        """The engine's context with the caller, made once for each principal."""
        if principal is None:
            return self._server.ctx
        ctx = self._contexts.get(principal)
        if ctx is None:
            caller = caller_of(principal, self._settings.auth.driver)
            ctx = self._contexts[principal] = replace_fields(self._server.ctx, caller=caller)
        return ctx

    async def _authorized(self, request: AuthRequest, address: str) -> Principal | None:
        """The principal, if it has a role of the operation, and if the request has the version header of its plane."""
        principal = None
        if self._roles is not None:
            principal = await self._server.authenticator.authenticate(request, address)
            if not principal.acts_as & self._roles:
                raise forbidden(principal, self._roles)
        version = request.headers.get(self._version_header, "").strip()
        if self._plane is not None and version not in self._versions:
            raise version_error(self._plane, version)
        return principal

    async def _namespace(self, requested: str | None) -> str:
        namespace = (requested or self._settings.default_namespace).strip().lower()
        if self._namespaced:
            await self._server.namespaces.require(namespace)
        elif not is_namespace_name(namespace):
            raise InvalidInput(Reason.MALFORMED_REQUEST, "The namespace is not a valid name.")
        return namespace

    async def _namespace_of(self, webhook: VerifiedWebhook) -> str:
        try:
            return await self._namespace(webhook.namespace)
        except NotFound as error:
            message = f"The adapter is declared for a namespace that does not exist. {error.message}"
            raise InvalidInput(Reason.ADAPTER_UNAVAILABLE, message) from None

    def _parsed(
        self, parameters: dict[str, str], document: object, ignored: list[UnknownField]
    ) -> tuple[RequestModel, RequestModel]:
        """Parse query parameters and body. Unknown fields are errors, or collected where the contract ignores them."""
        operation, shape = self._operation, self._operation.body
        unknown = unknown_fields(parameters, operation.query, _COMMON_QUERY_PARAMETERS) if parameters else []
        if self._ignores_unknown:
            ignored += unknown
            if shape is not None:
                ignored += unknown_fields(document, shape)
        elif unknown:
            raise ValidationFailed({each.path: [each.problem] for each in unknown})
        query = body = _NO_FIELDS
        if operation.query is not EmptyRequest:
            query = parse_parameters(parameters, operation.query)
        if shape is not None:
            body = parse(document, shape) if self._ignores_unknown else parse_strict(document, shape)
        return query, body

    def _error_response(self, error: Exception, path: Mapping[str, str]) -> Response:
        if not isinstance(error, PenstockError):
            log.error("an operation failed", operation=self._operation.name, exc_info=error)
            error = PenstockError(
                Reason.SERVER_ERROR, "The server failed; see its log for the cause.", outcome="unknown"
            )
        refuse = self._operation.refuse
        own = None if refuse is None else refuse(error, path, self._server.metrics)
        if own is not None:
            closes = error.reason is Reason.PAYLOAD_TOO_LARGE
            return replace(own, headers={"Connection": "close"}) if closes else own
        body = body_of(error)
        retry = error.details.get("retry_after_seconds")
        headers = {"Retry-After": str(retry)} if retry is not None else {}
        if error.reason is Reason.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        if error.reason is Reason.PAYLOAD_TOO_LARGE:
            headers["Connection"] = "close"
        if isinstance(error, ValidationFailed):
            body["outcome"] = "none"
        status = status_of(error)
        if self._operation.polls and status >= 500:
            body = {"task": None, "poll_status": PollStatus.UNAVAILABLE.value} | body
        return Response(body, status, headers)


def _with_warnings(body: dict[str, Any], ignored: list[UnknownField]) -> dict[str, Any]:
    """Add a warning for each ignored field, except those that `errors` already names."""
    errors = body.get("errors") or {}
    not_reported = [each for each in ignored if each.path not in errors]
    return with_warnings(body, not_reported) if not_reported else body


async def _run_until_disconnect(handling: Awaitable[Response], receive: Receive) -> Response:
    """Run a handler; cancel it when the client disconnects, and raise `ClientDisconnected`."""
    task, cancelled, finished = asyncio.current_task(), False, False
    assert task is not None

    def cancel(_: object) -> None:
        nonlocal cancelled
        if not finished:  # the callback may be due already when the handler returns
            cancelled = True
            task.cancel()

    disconnected = asyncio.ensure_future(_disconnected(receive))
    disconnected.add_done_callback(cancel)
    try:
        response = await handling
    except (asyncio.CancelledError, PenstockError):
        if cancelled:
            raise ClientDisconnected from None
        raise
    finally:
        finished = True
        disconnected.remove_done_callback(cancel)
        disconnected.cancel()
        if cancelled:
            task.uncancel()
    if cancelled or (disconnected.done() and response.on_undelivered is not None):
        if response.on_undelivered is not None:
            response.on_undelivered()
        raise ClientDisconnected
    return response


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
