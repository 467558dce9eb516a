"""Errors for requests that the server refuses, or that do not reach a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.sdk.errors.failure_types import FailureError, SdkError


class Unreachable(SdkError):
    """No server was reached, or the response did not come from a Penstock server."""

    def __init__(self, message: str = "The server cannot be reached") -> None:
        super().__init__(message)
        self.message = message


class ServerRefused(SdkError):
    """The server refused a request. Programs check `reason`; `message` is for people."""

    def __init__(
        self, reason: str, message: str = "", status: int = 0, details: Mapping[str, Any] | None = None
    ) -> None:
        SdkError.__init__(self, reason, message, status, details)
        self.reason = reason
        self.message = message
        self.status = status
        self.details: Mapping[str, Any] = details or {}

    @property
    def retry_after_seconds(self) -> float | None:
        """The delay that the server requested before the next request, if any."""
        seconds = self.details.get("retry_after_seconds")
        return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else None

    def __str__(self) -> str:
        return f"{self.message or 'The server refused'} [{self.reason}]"


class WorkflowAlreadyStartedError(ServerRefused, FailureError):
    """The workflow id is in use. Raised by clients, and by workflows that start it as a child."""

    def __init__(
        self,
        reason: str = "instance_already_started",
        message: str = "The workflow has been started already",
        status: int = 409,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        FailureError.__init__(self, message)
        ServerRefused.__init__(self, reason, message, status, details)

    @property
    def workflow_id(self) -> str | None:
        return self.details.get("workflow_id")

    @property
    def workflow_type(self) -> str | None:
        return self.details.get("workflow_type")

    @property
    def run_id(self) -> str | None:
        return self.details.get("run_id")


class WorkflowNotFoundError(ServerRefused):
    """The namespace has no such workflow or run."""


class WorkflowClosedError(ServerRefused):
    """The run is closed, or is not the current one, and accepts no more messages."""


class ActivityNotFoundError(ServerRefused):
    """The namespace has no such standalone activity."""


class ScheduleAlreadyRunningError(ServerRefused):
    """There is a schedule with this id already."""


class ScheduleNotFoundError(ServerRefused):
    """The namespace has no such schedule."""


class NamespaceNotFoundError(ServerRefused):
    """There is no such namespace."""


class SignalRefused(ServerRefused):
    """The workflow has no such signal, or not with these arguments."""


class QueryRejected(ServerRefused):
    """The workflow has no such query, or its code refused to answer or failed."""


class QueryFailed(ServerRefused):
    """No worker answered the query in time, or none was able to. It can be retried."""


class UpdateFailedError(ServerRefused):
    """The workflow rejected an update, or failed to execute it; `cause` is the error of its code, if there is one."""

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__


class UpdateRejectedError(UpdateFailedError):
    """The update was rejected, and nothing of it was recorded."""


class RequestIdConflictError(ServerRefused):
    """The request id was used before, for a different request."""


class LeaseLost(ServerRefused):
    """The task is no longer leased to this worker. Its report had no effect; drop it."""


class WorkerNotRegistered(ServerRefused):
    """The server does not know the worker, or no longer does. The worker registers again."""


class InvalidRequest(ServerRefused):
    """The request is malformed or exceeds a limit; `details["errors"]` names the fields."""


class Unauthorized(ServerRefused):
    """The server rejects the token or signature, or requires one that was not sent."""


class PermissionDenied(ServerRefused):
    """The token is valid, but does not permit this."""


class Busy(ServerRefused):
    """A bounded queue or rate limit is exhausted. Retry after the requested delay."""


class ServerUnavailable(ServerRefused):
    """The server is temporarily unavailable. `details["outcome"]` says whether the request may have had an effect."""


class NotOnThisEngineError(ServerRefused):
    """The engine behind this address, or under this workflow, has no such thing. `details` name both.

    In workflow code it fails the workflow task, as any bug does: the run continues with code that does not ask for it.

    Args:
        what: what was asked for.
        engine: the engine that lacks it.
        why: the reason, or what to use instead.
    """

    def __init__(self, what: str, *, engine: str, why: str = "") -> None:
        message = f"{what} is not available on {engine}" + (f": {why}" if why else "")
        super().__init__("not_on_this_engine", message, 501, {"what": what, "engine": engine})
