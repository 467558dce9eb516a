"""Requests that rerun, reset, fork, pause or delete runs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from penstock.wire.fields import INT_MAX, RequestId, Text1000, WorkflowId
from penstock.wire.requests import RequestModel


class DeleteRun(RequestModel):
    """Why a run is deleted; kept in the record of the deletion."""

    reason: Text1000 | None = None


class PauseRun(RequestModel):
    reason: Text1000 | None = None


class ResetRun(RequestModel):
    event: Annotated[int, Meta(ge=1, le=INT_MAX)]
    """The first event that a completed workflow task recorded; it is decided anew."""
    reapply: Literal["signals", "none"] = "signals"
    """Whether the new run gets the signals that came later."""
    reason: Text1000 | None = None
    request_id: RequestId | None = None


class ForkRun(RequestModel):
    event: Annotated[int, Meta(ge=1, le=INT_MAX)]
    workflow_id: WorkflowId | None = None
    input: Any | UnsetType = UNSET
    """The input of the new run; that of the old one if it is left out."""
    reapply: Literal["signals", "none"] = "none"
    reason: Text1000 | None = None
    request_id: RequestId | None = None


class ListDeletions(RequestModel):
    workflow_id: WorkflowId | None = None
    page_size: Annotated[int, Meta(ge=1, le=200)] = 50
    next_page_token: Annotated[str, Meta(max_length=1000)] | None = None
