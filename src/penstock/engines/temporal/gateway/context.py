"""A request to the gateway, and what its answers share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client as TemporalClient
from temporalio.common import Priority as TemporalPriority
from temporalio.service import RPCError, RPCStatusCode

from penstock.engines.temporal.refusals import not_here
from penstock.sdk.failures import Unreachable, refusal
from penstock.sdk.retry import FOR_EVER, RetryPolicy
from penstock.wire.request_parser import parse
from penstock.wire.requests import RequestModel

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

    def parse(self, shape: type[RequestModel], what: str, fields: Collection[str]) -> Json:
        """Return the fields of the body that are given. Raises `ValidationFailed` for what our server refuses, too.

        Args:
            shape: what our server accepts.
            what: what the request is for, for messages.
            fields: the fields that Temporal has something for; any other is refused by name.
        """
        parse(self.body, shape)
        self.accept(what, fields)
        return {name: value for name, value in self.body.items() if value is not None}

    def accept(self, what: str, fields: Collection[str]) -> None:
        """Refuse all other fields of the body: Temporal has nothing for them."""
        for name, value in self.body.items():
            if value is not None and name not in fields:
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
    """Return the priority of a request. Its fields are flat or under `priority`, as on our server."""
    given = body.get("priority")
    nested = given if isinstance(given, Mapping) else {}
    key = nested.get("priority_key") or body.get("priority_key")
    if isinstance(given, int):
        if given % 2 == 0:
            raise not_here(f"priority level {given}", "it has five levels: use priority_key 1 to 5")
        key = (given + 1) // 2
    return TemporalPriority(
        priority_key=key,
        fairness_key=nested.get("fairness_key") or body.get("fairness_key"),
        fairness_weight=nested.get("fairness_weight") or body.get("fairness_weight"),
    )


def retry_policy_of(wire: Mapping[str, Any] | None) -> RetryPolicy:
    """Return the retry policy of a standalone activity. Without one a failure is final, as on our server.

    Raises `NotOnThisEngineError` for pauses that do not grow by one factor.
    """
    if wire is None:
        return RetryPolicy(maximum_attempts=1)
    pauses = list(wire.get("backoff_ms") or [1000 * each for each in wire.get("backoff_seconds") or ()]) or [
        0
    ]
    factor = _growth(pauses)
    grown = [min(pauses[0] * factor**number, max(pauses)) for number in range(len(pauses))]
    if any(abs(one - other) > max(1, other / 20) for one, other in zip(grown, pauses, strict=True)):
        raise not_here("a backoff whose pauses do not grow by one factor", "its policies have a first pause")
    attempts = wire.get("max_attempts") or 1
    return RetryPolicy(
        initial_interval=timedelta(milliseconds=pauses[0]),
        backoff_coefficient=factor,
        maximum_interval=timedelta(milliseconds=max(pauses)),
        maximum_attempts=0 if attempts >= FOR_EVER else attempts,
        non_retryable_error_types=wire.get("non_retryable_error_types") or None,
    )


def _growth(pauses: Sequence[int]) -> float:
    """Return the factor between pauses; those before the longest have it, but for rounding."""
    last = max(1, pauses.index(max(pauses)) - 1)
    if len(pauses) == 1 or not pauses[0]:
        return 1.0
    return float(max(1.0, (pauses[last] / pauses[0]) ** (1 / last)))
