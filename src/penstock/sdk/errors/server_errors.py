"""What a caller is told when the server refuses a request, or cannot be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.sdk.errors.failure_types import FailureError, SdkError


class Unreachable(SdkError):
    """The server could not be reached, or did not answer in a way that it would."""

    def __init__(self, message: str = "The server cannot be reached") -> None:
        super().__init__(message)
        self.message = message


class ServerRefused(SdkError):
    """The server has refused a request. Programs look at `reason`, people at `message`."""

    def __init__(
        self,
        reason: str,
        message: str = "",
        status: int = 0,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        SdkError.__init__(self, reason, message, status, details)
        self.reason = reason
        self.message = message
        self.status = status
        self.details: Mapping[str, Any] = details or {}

    @property
    def retry_after_seconds(self) -> float | None:
        """How long the server asks to be left alone, if it said so."""
        said = self.details.get("retry_after_seconds")
        return float(said) if isinstance(said, int | float) and not isinstance(said, bool) else None

    def __str__(self) -> str:
        return f"{self.message or 'The server refused'} [{self.reason}]"


class WorkflowAlreadyStartedError(ServerRefused, FailureError):
    """The workflow id is in use. Raised by clients that start it and by workflows that start it as a child."""

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
    """There is no such workflow or run in this namespace."""


class WorkflowClosedError(ServerRefused):
    """The run has ended, or is not the current one: it can no longer be told anything."""


class ActivityNotFoundError(ServerRefused):
    """There is no such standalone activity in this namespace."""


class NamespaceNotFoundError(ServerRefused):
    """There is no such namespace."""


class SignalRefused(ServerRefused):
    """The workflow takes no such signal, or not with these arguments."""


class QueryRejected(ServerRefused):
    """The workflow knows no such query, or its code refused to answer or failed."""


class QueryFailed(ServerRefused):
    """No worker answered the query in time, or none could. It may be asked again."""


class UpdateFailedError(ServerRefused):
    """The workflow refused an update, or failed to carry it out; `cause` says why, if its code said so."""

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__


class UpdateRejectedError(UpdateFailedError):
    """The update was not accepted, and nothing of it is recorded."""


class RequestIdConflictError(ServerRefused):
    """The same request id was used before, for another request."""


class LeaseLost(ServerRefused):
    """The task is not this worker's any more. Its report changed nothing; drop it."""


class WorkerNotRegistered(ServerRefused):
    """The server does not know the worker (any more); it registers again."""


class InvalidRequest(ServerRefused):
    """The request is malformed or breaks a bound; `details["errors"]` names the fields."""


class Unauthorized(ServerRefused):
    """The server does not accept the token or the signature, or wants one that was not sent."""


class PermissionDenied(ServerRefused):
    """The token is known, and does not open this."""


class Busy(ServerRefused):
    """A bounded queue or a rate is full now: wait as told, then try again."""


class ServerUnavailable(ServerRefused):
    """The server cannot serve this now. `details["outcome"]` says whether anything may have happened."""
