"""The request pipeline: size, media type, JSON, authentication, role, version, namespace, fields, handler, response.

The order of the checks is part of the contract. A caller with the wrong role cannot find out whether a namespace
exists, and no namespace is looked up for a caller that is not authenticated.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import structlog

from penstock.core.permissions import ACCESS, Plane, Principal, authorize
from penstock.core.scheduling.dispatch import PollStatus
from penstock.engine.context import EngineContext
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.engine.runtime.deadlines import SLACK_S, Deadline
from penstock.errors import InvalidInput, PenstockError, Reason, ValidationFailed
from penstock.ports.clock import Clock
from penstock.server.auth import Authenticator, AuthRequest, fold_headers
from penstock.server.compression import compressed, compressing
from penstock.server.envelopes import control_body, plane_headers, worker_body
from penstock.server.metrics import Metrics
from penstock.server.namespace_check import NamespaceCheck, is_namespace_name
from penstock.server.operation import Operation, OperationCall, Response
from penstock.server.operations.contract import CONTRACT_OPERATIONS
from penstock.server.problems import body_of, status_of
from penstock.server.versions import check_version
from penstock.wire import strict_json
from penstock.wire.request_parser import parse, parse_parameters
from penstock.wire.requests import EmptyRequest, RequestModel
from penstock.wire.unknown_fields import UnknownField, parse_strict, unknown_fields, with_warnings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COMMON_HEADERS = {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_QUERY_PARAMETERS_MAX = 100
_COMMON_QUERY_PARAMETERS = frozenset({"namespace"})
_ENCODER = msgspec.json.Encoder()
log = structlog.get_logger("penstock.server")


class ClientDisconnected(Exception):
    """The client closed the connection."""


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What all endpoints of a server share."""

    ctx: EngineContext
    dispatcher: Dispatcher
    authenticator: Authenticator
    namespaces: NamespaceCheck
    clock: Clock
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class _Incoming:
    """A request as read from its connection, before authentication."""

    headers: dict[str, str]
    raw: bytes
    document: object
    ignored: list[UnknownField]
    """Unknown fields of a contract operation, which are ignored and listed in `warnings`."""


def check_host(server: ServerContext, headers: dict[str, str]) -> None:
    """Reject unknown `Host` headers, so that a foreign web page cannot reach a loopback server by DNS rebinding."""
    host = re.sub(r":\d+$", "", headers.get("host", "")).strip("[]")
    if not server.ctx.settings.listen.allows_host(host):
        raise InvalidInput(
            Reason.MISDIRECTED_HOST,
            f"This server does not serve the host {host[:100]!r}. Add it to DW_ALLOWED_HOSTS if it should.",
        )


def _with_warnings(body: dict[str, Any], ignored: list[UnknownField]) -> dict[str, Any]:
    """Add a warning for each ignored field, except those that `errors` already names."""
    errors = body.get("errors") or {}
    not_reported = [each for each in ignored if each.path not in errors]
    return with_warnings(body, not_reported) if not_reported else body


class Endpoint:
    """Serves one row of the operations table."""

    def __init__(self, server: ServerContext, operation: Operation) -> None:
        self._server = server
        self._operation = operation
        self._access = ACCESS[operation.family]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ignored: list[UnknownField] = []
        with self._server.metrics.request(self._operation.name) as outcome:
            try:
                response = await self._handle(scope, receive, ignored)
            except ClientDisconnected:
                outcome.status = 499
                return
            except PenstockError as error:
                response = self._error_response(error, scope)
            except Exception:
                log.exception("an operation failed", operation=self._operation.name)
                response = self._error_response(
                    PenstockError(
                        Reason.SERVER_ERROR,
                        "The server failed; see its log for the cause.",
                        outcome="unknown",
                    ),
                    scope,
                )
            outcome.status = response.status
            if ignored and isinstance(response.body, dict):
                response = replace(response, body=_with_warnings(response.body, ignored))
            await self._send(response, scope, send)

    async def _handle(self, scope: Scope, receive: Receive, ignored: list[UnknownField]) -> Response:
        headers = fold_headers(scope["headers"])
        check_host(self._server, headers)
        raw = await self._read(headers, receive)
        document = self._document(headers, raw, str(scope["method"]))
        incoming = _Incoming(headers, raw, document, ignored)
        if not self._operation.polls:
            return await self._call(scope, receive, incoming)
        async with Deadline(self._wait_ms(document)).kept(slack_s=2 * SLACK_S):
            return await self._call(scope, receive, incoming)

    def _wait_ms(self, document: object) -> int:
        """The wait that a poll requests, before its body is validated: the deadline covers authentication too."""
        polls = self._server.ctx.settings.polls
        requested = document.get("timeout_seconds") if isinstance(document, dict) else None
        if not isinstance(requested, int | float):
            return polls.poll_timeout_ms
        return int(max(0, min(requested * 1000, polls.poll_timeout_ms_max)))

    async def _call(self, scope: Scope, receive: Receive, incoming: _Incoming) -> Response:
        headers, raw = incoming.headers, incoming.raw
        principal = await self._principal(scope, headers, raw)
        if self._access.plane is not None:
            check_version(self._access.plane, headers, required=self._operation.needs_version)
        parameters = _parameters(scope)
        namespace = await self._namespace(headers, parameters)
        query, body = self._parsed(parameters, incoming.document, incoming.ignored)
        call = OperationCall(
            ctx=self._server.ctx,
            dispatcher=self._server.dispatcher,
            metrics=self._server.metrics,
            principal=principal,
            namespace=namespace,
            path=scope.get("path_params", {}),
            query=query,
            body=body,
            raw=raw,
            document=incoming.document if isinstance(incoming.document, dict) else {},
            headers=headers,
        )
        if self._operation.waits:
            return await _cancel_on_disconnect(self._operation.handle(call), receive)
        return await self._operation.handle(call)

    def _parsed(
        self, parameters: dict[str, str], document: object, ignored: list[UnknownField]
    ) -> tuple[RequestModel, RequestModel]:
        """Parse query parameters and body. Unknown fields are errors, or collected where the contract ignores them."""
        operation = self._operation
        shape = operation.body
        unknown = unknown_fields(parameters, operation.query, _COMMON_QUERY_PARAMETERS) if parameters else []
        if operation.name in CONTRACT_OPERATIONS:
            ignored += unknown
            if shape is not None:
                ignored += unknown_fields(document, shape)
                return parse_parameters(parameters, operation.query), parse(document, shape)
        elif unknown:
            raise ValidationFailed({each.path: [each.problem] for each in unknown})
        return parse_parameters(parameters, operation.query), parse_strict(
            document, shape
        ) if shape else EmptyRequest()

    async def _read(self, headers: dict[str, str], receive: Receive) -> bytes:
        max_bytes = self._server.ctx.settings.limits.payload_bytes_max
        declared = headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > max_bytes):
            raise _too_large(max_bytes)
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            chunks.append(chunk)
            if not message.get("more_body"):
                return b"".join(chunks)

    def _document(self, headers: dict[str, str], raw: bytes, method: str) -> object:
        if not raw or method not in _CHANGING:
            return {}
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            raise InvalidInput(
                Reason.UNSUPPORTED_CONTENT_ENCODING,
                "Compressed request bodies are not supported; send the body without Content-Encoding.",
                accepted_content_encodings=["identity"],
            )
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media != "application/json" and not media.endswith("+json"):
            raise InvalidInput(
                Reason.UNSUPPORTED_MEDIA_TYPE,
                "The body must be JSON, with Content-Type: application/json.",
                accepted_content_types=["application/json", "application/*+json"],
            )
        return strict_json.loads(raw)

    async def _principal(self, scope: Scope, headers: dict[str, str], raw: bytes) -> Principal | None:
        if self._access.roles is None:
            return None
        auth_request = AuthRequest(
            method=str(scope["method"]),
            raw_path=scope.get("raw_path", b"").decode("latin-1"),
            raw_query=scope.get("query_string", b"").decode("latin-1"),
            headers=headers,
            body=raw,
            now_ms=self._server.clock.now_ms(),
        )
        principal = await self._server.authenticator.authenticate(auth_request, self._address(scope, headers))
        authorize(principal, self._operation.family)
        return principal

    def _address(self, scope: Scope, headers: dict[str, str]) -> str:
        client = scope.get("client")
        peer = client[0] if client else "unknown"
        if self._server.ctx.settings.listen.trusts_proxy(peer):
            forwarded = headers.get("x-forwarded-for", "").split(",")[-1].strip()
            return forwarded or peer
        return str(peer)

    async def _namespace(self, headers: dict[str, str], parameters: dict[str, str]) -> str:
        requested = headers.get("x-namespace") or parameters.get("namespace")
        name = (requested or self._server.ctx.settings.default_namespace).strip().lower()
        if self._access.namespaced:
            await self._server.namespaces.require(name)
        elif not is_namespace_name(name):
            raise InvalidInput(Reason.MALFORMED_REQUEST, "The namespace is not a valid name.")
        return name

    def _error_response(self, error: PenstockError, scope: Scope) -> Response:
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

    async def _send(self, response: Response, scope: Scope, send: Send) -> None:
        body = response.body
        if isinstance(body, dict):
            if self._access.plane is Plane.WORKER:
                body = worker_body(body)
            elif self._operation.control is not None:
                body = control_body(self._operation.control, body, dict(scope.get("path_params", {})))
        headers = COMMON_HEADERS | plane_headers(self._access.plane) | dict(response.headers)
        if isinstance(body, AsyncIterator):
            await self._stream(body, response.status, headers, scope, send)
            return
        raw = body if isinstance(body, bytes) else _ENCODER.encode(body)
        if self._server.ctx.settings.listen.compression_enabled:
            raw, headers = compressed(raw, headers, scope)
        try:
            await respond(send, response.status, headers, raw)
        except BaseException:
            if response.on_undelivered is not None:
                response.on_undelivered()
            raise

    async def _stream(
        self, parts: AsyncIterator[bytes], status: int, headers: dict[str, str], scope: Scope, send: Send
    ) -> None:
        """Send a body as it is produced. A failure halfway breaks the connection, which clients see as truncation."""
        if self._server.ctx.settings.listen.compression_enabled:
            parts, headers = compressing(parts, headers, scope)
        await send({"type": "http.response.start", "status": status, "headers": _lines(headers)})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def respond(send: Send, status: int, headers: dict[str, str], raw: bytes) -> None:
    lines = _lines(headers)
    lines.append((b"Content-Length", str(len(raw)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": raw})


def _lines(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]


async def _cancel_on_disconnect(handling: Awaitable[Response], receive: Receive) -> Response:
    """Run a handler; cancel it when the client disconnects, and raise `ClientDisconnected`."""
    disconnected = asyncio.ensure_future(_disconnected(receive))
    with _DisconnectCancellation() as cancellation:
        disconnected.add_done_callback(cancellation.cancel_task)
        try:
            response = await handling
        except (asyncio.CancelledError, PenstockError):
            if cancellation.cancelled:
                raise ClientDisconnected from None
            raise
        finally:
            disconnected.remove_done_callback(cancellation.cancel_task)
            disconnected.cancel()
    if cancellation.cancelled or (disconnected.done() and response.on_undelivered is not None):
        if response.on_undelivered is not None:
            response.on_undelivered()
        raise ClientDisconnected
    return response


class _DisconnectCancellation:
    """Cancels the current task, but only while it is inside the block."""

    def __init__(self) -> None:
        self.cancelled = False
        self._task: asyncio.Task[Any] | None = asyncio.current_task()

    def __enter__(self) -> _DisconnectCancellation:
        return self

    def cancel_task(self, _: object) -> None:
        if self._task is not None:
            self.cancelled = True
            self._task.cancel()

    def __exit__(self, *_: object) -> None:
        task, self._task = self._task, None
        if self.cancelled and task is not None:
            task.uncancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _parameters(scope: Scope) -> dict[str, str]:
    """Query parameters, each at most once."""
    text = scope.get("query_string", b"")
    if not text:
        return {}
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=False,
            strict_parsing=False,
            errors="strict",
            max_num_fields=_QUERY_PARAMETERS_MAX,
        )
    except ValueError:
        raise InvalidInput(Reason.MALFORMED_REQUEST, "The query string is malformed.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidInput(
                Reason.MALFORMED_REQUEST, f"The query parameter {name[:50]!r} is repeated; send it once."
            )
        found[name] = value
    return found


def _too_large(max_bytes: int) -> InvalidInput:
    return InvalidInput(Reason.PAYLOAD_TOO_LARGE, f"The body exceeds {max_bytes} bytes.", limit=max_bytes)
