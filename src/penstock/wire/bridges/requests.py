"""Requests to bridge adapters."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from penstock.wire.fields import Name, Object, RequestId, WorkflowId
from penstock.wire.requests import Anything, RequestModel

ActionName = Annotated[str, Meta(min_length=1, max_length=64)]


class BridgeEventBody(RequestModel, kw_only=True):
    """An event in the contract's envelope. A declared adapter makes one of the body of a signed webhook."""

    action: ActionName
    idempotency_key: RequestId
    target: Object
    input: Anything = None
    correlation: Object | None = None


class StartTarget(RequestModel, kw_only=True):
    workflow_type: Name
    workflow_id: WorkflowId | None = None
    task_queue: Name | None = None
    business_key: Name | None = None
    duplicate_policy: Literal["reject_duplicate", "use_existing"] | None = None


class SignalTarget(RequestModel, kw_only=True):
    workflow_id: WorkflowId
    signal_name: Name


class UpdateTarget(RequestModel, kw_only=True):
    workflow_id: WorkflowId
    update_name: Name
