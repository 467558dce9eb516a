"""Errors between worker and server: which are transient, which end the worker, and what is logged."""

from __future__ import annotations

import logging
from typing import Any

from penstock.errors import Reason
from penstock.sdk.errors.error_mapping import BY_REASON
from penstock.sdk.failures import LeaseLost, ServerRefused, Unreachable

FATAL_REASONS = frozenset(
    {
        Reason.UNAUTHORIZED,
        Reason.FORBIDDEN,
        Reason.NAMESPACE_NOT_FOUND,
        Reason.VALIDATION_FAILED,
        Reason.TASK_QUEUE_MISMATCH,
        Reason.BUILD_ID_MISMATCH,
        Reason.WORKFLOW_DEFINITION_CHANGED,
        Reason.MISSING_PROTOCOL_VERSION,
        Reason.UNSUPPORTED_PROTOCOL_VERSION,
        Reason.NOT_FOUND,
        Reason.METHOD_NOT_ALLOWED,
    }
)
"""Refusals of registrations and polls that retrying cannot fix."""

log = logging.getLogger("penstock.worker")


def is_fatal(error: Exception) -> bool:
    return isinstance(error, ServerRefused) and error.reason in FATAL_REASONS


def is_lease_lost(error: Exception) -> bool:
    """Whether the server refused a report because the lease is lost. The worker drops the task."""
    return isinstance(error, ServerRefused) and BY_REASON.get(error.reason) is LeaseLost


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, Unreachable):
        return True
    return isinstance(error, ServerRefused) and (error.status == 429 or error.status >= 500)


def retry_after_s(error: Exception) -> float:
    """Return the delay that the server requested before the next request, or 0."""
    details: Any = error.details if isinstance(error, ServerRefused) else None
    seconds = details.get("retry_after_seconds") if isinstance(details, dict) else None
    return float(seconds) if isinstance(seconds, int | float) else 0.0


class ErrorPolicy:
    """Logs an outage once when it begins and once when it ends, however many requests fail in between."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._logged: str | None = None

    def report_error(self, error: Exception) -> None:
        reason = str(error.reason) if isinstance(error, ServerRefused) else type(error).__name__
        if reason != self._logged:
            self._logged = reason
            log.warning("%s cannot reach the server and keeps retrying: %s", self._who, error)

    def report_recovery(self) -> None:
        if self._logged is not None:
            self._logged = None
            log.info("%s reaches the server again", self._who)
