"""One row of the operations table, the call that its handler receives, and the response that it returns."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.core.permissions import Principal, RouteFamily
from penstock.engine.context import EngineContext
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.errors import PenstockError
from penstock.server.metrics import Metrics
from penstock.wire.request_parser import field_error
from penstock.wire.requests import EmptyRequest, RequestModel

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OperationCall:
    """A request that passed authentication, version and namespace checks, and whose fields are parsed."""

    ctx: EngineContext
    dispatcher: Dispatcher
    metrics: Metrics
    principal: Principal | None
    namespace: str
    path: Mapping[str, str]
    query: Any
    body: Any
    raw: bytes
    document: Body
    """The body as parsed JSON, before it was read into `body`."""
    headers: Mapping[str, str]
    wait_ms: int = 0
    """How long a poll may wait for tasks: what it requests, within the bounds of the settings."""
    arrived_at: float = field(default_factory=time.monotonic)
    """When the request was read, by the monotonic clock of this process."""

    @property
    def author(self) -> str:
        """The credential that is recorded in change logs."""
        assert self.principal is not None, "operations that change something are authenticated"
        return self.principal.credential

    @property
    def digest(self) -> str:
        """Identifies the body: a report with the same digest is a repetition."""
        return hashlib.sha256(self.raw).hexdigest()


@dataclass(frozen=True, slots=True)
class Response:
    """What a handler returns: JSON, bytes, or an iterator of bytes that is streamed."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    on_undelivered: Callable[[], None] | None = None
    """Called if the client disconnected before the response was sent."""


Handle = Callable[[OperationCall], Awaitable[Response]]
Refuse = Callable[[PenstockError, Mapping[str, str], Metrics], Response | None]


@dataclass(frozen=True, slots=True)
class Operation:
    """An endpoint. Routing, permissions, parsing, OpenAPI and the reference pages are derived from these rows."""

    method: str
    path: str
    name: str
    summary: str
    family: RouteFamily
    handle: Handle
    body: type[RequestModel] | None = None
    query: type[RequestModel] = EmptyRequest
    status: int = 200
    control: str | None = None
    """The operation's name in the `control_plane` envelope of workflow routes."""
    waits: bool = False
    """A long poll: cancelled when the client disconnects."""
    polls: bool = False
    """A poll of a worker: every response has `task` and `poll_status` and arrives before the poll's deadline."""
    refusals: tuple[int, ...] = ()
    """Error statuses beyond those common to all operations."""
    may_fail_partially: bool = False
    """Whether it returns 207 when part of the work failed."""
    needs_version: bool = True
    """Whether the version header of its plane is required; if sent, it is always checked."""
    takes_webhooks: bool = False
    """Whether the signature of a declared bridge adapter is accepted in place of a credential."""
    takes_bytes: bool = False
    """Whether the body is not JSON but the bytes of an external payload."""
    refuse: Refuse | None = None
    """Renders errors of the operation in a form of its own; where it returns None, they have the common one."""
    media: str = "application/json"
    """The media type of successful responses."""


def with_run(
    current: Operation, name: str, summary: str, query: type[RequestModel] = EmptyRequest
) -> tuple[Operation, Operation]:
    """An operation on a workflow's current run, and the same one on a run that the path names."""
    path = current.path.replace("{workflow_id}", "{workflow_id}/runs/{run_id}")
    return current, replace(current, path=path, name=name, summary=summary, query=query)


def text_path(call: OperationCall, name: str, most: int = 255) -> str:
    """A path segment; raises `ValidationFailed` if it is too long or has control characters."""
    value = call.path[name]
    if not value or len(value) > most or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value):
        raise field_error(name, f"must be 1 to {most} visible characters")
    return value
