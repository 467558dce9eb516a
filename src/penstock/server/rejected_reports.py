"""Reports that no honest worker makes leave a line in the log: who tried what, and how it was refused.

The caller learns no more than from any refusal: whether somebody else's task exists is not told.
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


def log_rejected_report(refusal: PenstockError, namespace: str, worker_id: str) -> None:
    """Log a refused report, if it named a lease that its caller does not have, or told another story of it."""
    if refusal.reason in AUDITED:
        task_id = str(refusal.details.get("task_id", ""))
        log.warning(
            "a report was refused",
            reason=refusal.reason.value,
            namespace=namespace,
            worker_id=worker_id,
            task_id=task_id[:255],
        )
