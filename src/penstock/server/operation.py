"""What one endpoint is: a row that parsing, permission, calling, rendering and documentation all read."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.permissions import Principal, RouteFamily
from penstock.engine.context import EngineContext
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.server.metrics import Metrics
from penstock.wire.request_parser import field_error
from penstock.wire.requests import EmptyRequest, RequestModel

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class OperationCall:
    """One authenticated, versioned, parsed request."""

    ctx: EngineContext
    dispatcher: Dispatcher
    metrics: Metrics
    principal: Principal | None
    namespace: str
    path: Mapping[str, str]
    query: Any
    body: Any
    raw: bytes
    headers: Mapping[str, str]
    arrived_at: float = field(default_factory=time.monotonic)
    """When the request was read, by this process's monotonic clock."""

    @property
    def author(self) -> str:
        """Who is named beside what the call changes."""
        assert self.principal is not None, "only who is known may change something"
        return self.principal.credential

    @property
    def digest(self) -> str:
        """What tells a repeated report from another one."""
        return hashlib.sha256(self.raw).hexdigest()


@dataclass(frozen=True, slots=True)
class Response:
    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    on_undelivered: Callable[[], None] | None = None
    """Called when the caller was gone before the answer could be sent."""


Handle = Callable[[OperationCall], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Operation:
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
    """Whether it may be held open, so that a caller's hang-up must be noticed."""
    polls: bool = False
    """Whether it is a worker's poll: every answer carries `task` and `poll_status`, and comes in the poll's time."""
    refusals: tuple[int, ...] = ()
    """Statuses beyond the common ones that it may answer with."""
    may_fail_partially: bool = False
    """Whether some of what it does may fail while the rest is done (207)."""
    needs_version: bool = True
    """Whether the version header of its plane must be sent; one that is sent is checked in any case."""
    media: str = "application/json"
    """What its answers are, when it is not refused."""


def text_path(call: OperationCall, name: str, most: int = 255) -> str:
    """A path segment that names something; one that cannot be a name is refused before it is looked up."""
    value = call.path[name]
    if not value or len(value) > most or any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value):
        raise field_error(name, f"must be 1 to {most} visible characters")
    return value
