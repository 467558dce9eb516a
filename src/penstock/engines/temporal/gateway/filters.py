"""Filters of lists, as queries of Temporal's visibility."""

from __future__ import annotations

from typing import Final

from penstock.sdk.failures import refusal

_STATUSES: Final = {
    "running": ("Running",),
    "completed": ("Completed",),
    "failed": ("Failed", "Canceled", "Terminated", "TimedOut"),
    "cancelled": ("Canceled",),
    "terminated": ("Terminated",),
    "timed_out": ("TimedOut",),
}
"""Temporal's statuses by ours; `failed` are all that ended without a result, as on our server."""
_CONTINUED: Final = "ContinuedAsNew"


def visibility_query(
    query: str | None = None,
    *,
    status: str | None = None,
    workflow_type: str | None = None,
    of_workflows: bool = True,
) -> str:
    """Return one query for a query of the caller and the filters beside it. Raises `validation_failed`.

    Args:
        query: the caller's own, in Temporal's language.
        status: a status of ours.
        workflow_type: only runs of this type.
        of_workflows: whether it is for workflows; a completed one may have continued as new.
    """
    parts = [f"({query})"] if query and (status or workflow_type) else [query or ""]
    if workflow_type:
        parts.append(f"WorkflowType = {_quoted(workflow_type)}")
    if status:
        if status not in _STATUSES:
            known = ", ".join(_STATUSES)
            raise refusal(422, {"reason": "validation_failed", "message": f"status must be one of {known}"})
        names = _STATUSES[status] + ((_CONTINUED,) if status == "completed" and of_workflows else ())
        parts.append(f"ExecutionStatus IN ({', '.join(map(_quoted, names))})")
    return " AND ".join(each for each in parts if each)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
