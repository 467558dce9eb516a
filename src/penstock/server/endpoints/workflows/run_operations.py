"""Pause, resume, reset, fork, rerun and deletion of runs, and the records of deletions."""

from __future__ import annotations

from msgspec import UNSET

from penstock.core.model import Blob, Run, RunId
from penstock.core.timestamps import iso, iso_or_none
from penstock.engine.operations import run_deletion
from penstock.engine.operations.run_deletion import Deletion
from penstock.engine.workflows import run_pause
from penstock.engine.workflows.copies import rerun as reruns
from penstock.engine.workflows.copies import reset as resets
from penstock.engine.workflows.copies.reset import ForkTarget, Reapply, ResetRequest
from penstock.engine.workflows.copies.run_copies import MadeRun, SourceAddress
from penstock.engine.workflows.run_pause import PauseResult
from penstock.server.endpoints.page_tokens import decode_page_start, encode_page_start
from penstock.server.endpoints.workflows.addresses import address, workflow_id
from penstock.server.operation import Body, OperationCall, Response, text_path
from penstock.wire import payloads, responses
from penstock.wire.requests import EndRun
from penstock.wire.workflows.run_operations import DeleteRun, ForkRun, ListDeletions, PauseRun, ResetRun


async def rerun(call: OperationCall) -> Response:
    request: EndRun = call.body
    made = await reruns.rerun(call.ctx, _source(call), request.reason, request.request_id)
    return Response(_made(made, reruns.OUTCOME))


async def reset(call: OperationCall) -> Response:
    asked: ResetRun = call.body
    request = ResetRequest(asked.event, Reapply(asked.reapply), asked.reason, asked.request_id)
    return Response(_made(await resets.reset(call.ctx, _source(call), request), resets.RESET_OUTCOME))


async def fork(call: OperationCall) -> Response:
    asked: ForkRun = call.body
    request = ResetRequest(asked.event, Reapply(asked.reapply), asked.reason, asked.request_id)
    given = None if asked.input is UNSET else Blob(payloads.parse(asked.input, "input").blob)
    target = ForkTarget(asked.workflow_id, given)
    return Response(
        _made(await resets.fork(call.ctx, _source(call), request, target), resets.FORK_OUTCOME), 201
    )


async def pause(call: OperationCall) -> Response:
    request: PauseRun = call.body
    return _paused(await run_pause.pause(call.ctx, address(call), request.reason))


async def resume(call: OperationCall) -> Response:
    request: PauseRun = call.body
    return _paused(await run_pause.resume(call.ctx, address(call), request.reason))


def _paused(done: PauseResult) -> Response:
    return Response(
        outcome_of(done.run, done.outcome.value) | {"pause": responses.pause(done.run.waits.paused)}
    )


async def delete(call: OperationCall) -> Response:
    request: DeleteRun = call.body
    deleted = await run_deletion.delete_run(
        call.ctx, call.namespace, workflow_id(call), _run_id(call), request.reason
    )
    return Response(_deletion(deleted) | {"outcome": "deleted"})


async def list_deletions(call: OperationCall) -> Response:
    query: ListDeletions = call.query
    after = decode_page_start(query.next_page_token)
    found = await run_deletion.deletions(
        call.ctx, call.namespace, query.workflow_id, after, query.page_size + 1
    )
    page = found[: query.page_size]
    return Response(
        {
            "deletions": [_deletion(each) for each in page],
            "next_page_token": encode_page_start(page[-1].place) if len(found) > len(page) else None,
        }
    )


def _run_id(call: OperationCall) -> RunId | None:
    return RunId(text_path(call, "run_id")) if "run_id" in call.path else None


def _source(call: OperationCall) -> SourceAddress:
    return SourceAddress(call.namespace, workflow_id(call), _run_id(call))


def _made(made: MadeRun, outcome: str) -> Body:
    return outcome_of(made.run, outcome) | {
        "source_run_id": made.source_run_id,
        "reused_event_count": made.reused_events,
    }


def outcome_of(run: Run, outcome: str) -> Body:
    return {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "run_number": run.run_number,
        "workflow_type": run.workflow_type,
        "status": run.status.value,
        "outcome": outcome,
    }


def _deletion(deleted: Deletion) -> Body:
    return {
        "workflow_id": deleted.workflow_id,
        "run_id": deleted.run_id,
        "run_number": deleted.run_number,
        "workflow_type": deleted.workflow_type,
        "status": deleted.status,
        "closed_reason": deleted.closed_reason,
        "started_at": iso(deleted.started_at_ms),
        "closed_at": iso_or_none(deleted.closed_at_ms),
        "history_length": deleted.events,
        "is_archived": deleted.archived,
        "deleted_at": iso(deleted.at_ms),
        "deletion_reason": deleted.reason,
        "principal": deleted.principal,
    }
