"""Update validation: the task that a worker receives, and its reports."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from penstock.core.history.events import CODEC
from penstock.core.model import QueryTask, RecordedEvent, Run
from penstock.core.timestamps import iso
from penstock.wire.fields import Attempt, Message, Name, Object
from penstock.wire.matching.tasks import worker_event
from penstock.wire.requests import RequestModel
from penstock.wire.responses import Body, envelope

TASK_KIND = "update_validation"


class ApproveUpdate(RequestModel):
    lease_owner: Name
    update_validation_attempt: Attempt


class Rejection(RequestModel):
    message: Message
    reason: Annotated[str, Meta(max_length=255)] | None = None
    type: Annotated[str, Meta(max_length=1000)] | None = None
    stack_trace: Message | None = None
    validation_errors: Object | None = None


class RejectUpdate(ApproveUpdate):
    failure: Rejection


def task(query: QueryTask, run: Run, events: list[RecordedEvent], lease_ends_after_ms: int) -> Body:
    assert query.lease_expires_at_ms is not None
    return {
        "task_kind": TASK_KIND,
        "update_validation_task_id": query.query_id,
        "update_validation_attempt": query.attempt,
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "update_name": query.name,
        "payload_codec": CODEC,
        "workflow_arguments": envelope(run.input),
        "update_arguments": envelope(query.arguments),
        "history_events": [worker_event(event) for event in events],
        "run_status": run.status.value,
        "last_history_sequence": run.last_sequence,
        "task_queue": query.task_queue,
        "lease_owner": query.lease_owner,
        "lease_expires_at": iso(query.lease_expires_at_ms),
        "lease_ends_after_ms": lease_ends_after_ms,
    }
