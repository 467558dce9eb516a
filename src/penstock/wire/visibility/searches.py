"""Requests that find runs, act on many of them, and register search attributes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from penstock.core.visibility.tokens import QUERY_MAX
from penstock.wire.fields import NO_NUL, Name, RequestId, Text1000
from penstock.wire.requests import Anything, RequestModel

QueryText = Annotated[str, Meta(min_length=1, max_length=QUERY_MAX, pattern=NO_NUL)]
ListedStatus = Literal["running", "completed", "failed", "cancelled", "terminated"]
"""`failed` includes the cancelled and terminated runs."""
AttributeName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"\A[A-Za-z][A-Za-z0-9_]*\Z")]
PageToken = Annotated[str, Meta(max_length=1000)]
BATCH_RUNS_MAX = 500


class FindWorkflows(RequestModel):
    """Filters of runs, combined by AND."""

    workflow_type: Name | None = None
    status: ListedStatus | None = None
    query: QueryText | None = None


class ListWorkflows(FindWorkflows):
    page_size: Annotated[int, Meta(ge=1, le=200)] = 50
    next_page_token: PageToken | None = None
    include: Literal["tasks"] | None = None
    """`tasks` adds to each open run what it waits for, and its live tasks by kind and state."""


class CountWorkflows(FindWorkflows):
    group_by: Literal["status"] | None = None


class RegisterSearchAttribute(RequestModel):
    name: AttributeName
    type: Literal["keyword", "text", "int", "double", "bool", "datetime", "keyword_list"]


class BatchOperation(RequestModel, forbid_unknown_fields=True):
    """An operation on all open runs that a query finds.

    Unknown fields are errors: a misspelt filter would select too many runs.
    """

    operation: Literal["cancel", "terminate", "signal"]
    query: QueryText
    reason: Text1000 | None = None
    signal_name: Name | None = None
    input: Anything = None
    dry_run: bool | None = None
    max_runs: Annotated[int, Meta(ge=1, le=BATCH_RUNS_MAX)] | None = None
    request_id: RequestId | None = None
    """Deduplicates: a repeated signal with the same id reaches no run twice."""
    token: PageToken | None = None
    """`next_token` of the previous response, to continue from there."""


class LocateId(RequestModel):
    """An id or a name of anything."""

    id: Annotated[str, Meta(min_length=1, max_length=512, pattern=NO_NUL)]
