"""Logs reports that a correct worker cannot make, such as one for a lease of another worker.

The response is that of any rejected report: it does not reveal whether another worker's task exists.
"""

from __future__ import annotations

import structlog

from penstock.errors import PenstockError, Reason

AUDITED = frozenset(
    {
        Reason.TASK_NOT_FOUND,
        Reason.ATTEMPT_NOT_FOUND,
        Reason.LEASE_OWNER_MISMATCH,
        Reason.COMPLETION_CONFLICT,
    }
)
log = structlog.get_logger("penstock.audit")


def log_rejected_report(error: PenstockError, namespace: str, worker_id: str) -> None:
    """Log a rejected report if it names a lease that the caller does not hold, or contradicts an earlier report."""
    if error.reason in AUDITED:
        task_id = str(error.details.get("task_id", ""))
        log.warning(
            "a report was rejected",
            reason=error.reason.value,
            namespace=namespace,
            worker_id=worker_id,
            task_id=task_id[:255],
        )
