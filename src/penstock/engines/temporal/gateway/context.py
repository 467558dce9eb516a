"""A request to the gateway, and what its answers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client as TemporalClient
from temporalio.common import Priority as TemporalPriority
from temporalio.service import RPCError, RPCStatusCode

from penstock.engines.temporal import options as translated
from penstock.engines.temporal.refusals import not_here
from penstock.sdk.failures import Unreachable, refusal
from penstock.sdk.retry import RetryPolicy

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """A request of a client. `names` are the parts of the path that its route leaves open."""

    client: TemporalClient
    names: Sequence[str]
    body: Json
    query: Mapping[str, Any]
    key: str | None = None
    """The idempotency key of a start."""

    def refuse(self, what: str, *fields: str) -> None:
        """Refuse fields of the body that Temporal has nothing for."""
        for name in fields:
            if self.body.get(name) is not None:
                raise not_here(f"{name} of {what}")


GatewayAnswer = Callable[[GatewayRequest], Awaitable[Json]]

_REFUSALS: Mapping[RPCStatusCode, tuple[int, str]] = {
    RPCStatusCode.INVALID_ARGUMENT: (422, "validation_failed"),
    RPCStatusCode.PERMISSION_DENIED: (403, "forbidden"),
    RPCStatusCode.UNAUTHENTICATED: (401, "unauthorized"),
    RPCStatusCode.RESOURCE_EXHAUSTED: (429, "too_many_requests"),
    RPCStatusCode.FAILED_PRECONDITION: (409, "failed_precondition"),
}


@contextmanager
def refusals(not_found: str, what: str, *, closed: str = "run_not_active") -> Iterator[None]:
    """Raise the errors of a cluster as those of our server.

    Args:
        not_found: the reason for something that does not exist.
        what: what the request addressed, for messages.
        closed: the reason for something that has ended.
    """
    try:
        yield
    except RPCError as error:
        text = error.message
        if error.status is RPCStatusCode.NOT_FOUND:
            reason = closed if "already completed" in text else not_found
            status = 404 if reason == not_found else 409
            verb = "does not exist" if reason == not_found else "has ended"
            raise refusal(status, {"reason": reason, "message": f"{what} {verb}"}) from error
        if error.status is RPCStatusCode.UNIMPLEMENTED:
            raise not_here(what, f"the server does not have it: {text}") from error
        if error.status in _REFUSALS:
            number, reason = _REFUSALS[error.status]
            raise refusal(number, {"reason": reason, "message": text}) from error
        raise Unreachable(f"The Temporal server did not answer: {text}") from error


def seconds(body: Mapping[str, Any], name: str) -> timedelta | None:
    """Return a duration of a request, in milliseconds where it has them."""
    exact, whole = body.get(f"{name}_ms"), body.get(f"{name}_seconds")
    if exact is not None:
        return timedelta(milliseconds=exact)
    return None if whole is None else timedelta(seconds=whole)


def priority_of(body: Mapping[str, Any]) -> TemporalPriority:
    """Return the priority of a request."""
    given = body.get("priority") or {}
    if not isinstance(given, Mapping):
        raise not_here("a priority level from 0 to 9", "use Priority(priority_key=1 to 5)")
    return TemporalPriority(
        priority_key=given.get("priority_key"),
        fairness_key=given.get("fairness_key"),
        fairness_weight=given.get("fairness_weight"),
    )


def retry_policy_of(wire: Mapping[str, Any] | None) -> Any:
    """Return the retry policy of a request, whose pauses are listed. Temporal has a first one and a factor."""
    if wire is None:
        return None
    pauses = list(wire.get("backoff_ms") or [1000])
    factor = pauses[1] / pauses[0] if len(pauses) > 1 and pauses[0] else 2.0
    return translated.retry_policy(
        RetryPolicy(
            initial_interval=timedelta(milliseconds=pauses[0]),
            backoff_coefficient=max(1.0, factor),
            maximum_interval=timedelta(milliseconds=max(pauses[-1], pauses[0])),
            maximum_attempts=0 if wire.get("max_attempts", 0) >= 2**31 - 1 else wire.get("max_attempts", 0),
            non_retryable_error_types=wire.get("non_retryable_error_types") or None,
        )
    )
