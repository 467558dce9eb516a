"""Lists and counts of runs by filters or a query."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.core.model import Run
from penstock.core.timestamps import iso
from penstock.core.visibility.live_tasks import LiveTasks, waits_for
from penstock.engine.visibility import run_search
from penstock.engine.visibility.run_search import RunCriteria
from penstock.server.endpoints.page_tokens import decode_page_start, encode_page_start
from penstock.server.operation import Body, OperationCall, Response
from penstock.wire import responses
from penstock.wire.fields import PRINTABLE
from penstock.wire.request_parser import field_error
from penstock.wire.visibility.searches import CountWorkflows, FindWorkflows, ListWorkflows

TEXT_MAX = 255


async def list_all(call: OperationCall) -> Response:
    request: ListWorkflows = call.query
    after = decode_page_start(request.next_page_token)
    criteria = run_filter(call, request)
    if request.include == "tasks":
        found, tasks = await run_search.page_with_tasks(call.ctx, criteria, after, request.page_size)
        listed = [responses.run_summary(run) | _waits(run, tasks.get(run.run_id)) for run in found.runs]
    else:
        found = await run_search.page(call.ctx, criteria, after, request.page_size)
        listed = [responses.run_summary(run) for run in found.runs]
    return Response(
        {
            "workflows": listed,
            "workflow_count": len(found.runs),
            "next_page_token": None if found.after is None else encode_page_start(found.after),
        }
    )


def _waits(run: Run, tasks: Sequence[LiveTasks] | None) -> Body:
    """What an open run waits for."""
    if tasks is None:
        return {"waits_for": None, "wait_kind": None, "wait_reason": None, "tasks": []}
    return {
        "waits_for": waits_for(tasks).value,
        **responses.run_wait(run),
        "tasks": [
            {
                "kind": each.kind,
                "state": each.state,
                "count": each.count,
                "task_queue": each.task_queue,
                "type": each.type,
                "available_at": iso(each.available_at_ms),
            }
            for each in tasks
        ],
    }


async def count(call: OperationCall) -> Response:
    request: CountWorkflows = call.query
    counted = await run_search.count(call.ctx, run_filter(call, request))
    body: Body = {
        "count": counted.total,
        "complete": counted.complete,
        "at_least": None if counted.complete else counted.total,
    }
    if request.group_by is not None:
        body["groups"] = dict(sorted(counted.by_status.items()))
    return Response(body)


def run_filter(call: OperationCall, request: FindWorkflows) -> RunCriteria:
    """The filters of a request. Text that is not a query is searched in ids and business keys."""
    query = None if request.query is None else run_search.read_query_or_text(request.query)
    text = request.query if query is None else None
    if text is not None and (len(text) > TEXT_MAX or not re.match(PRINTABLE, text)):
        raise field_error("query", f"must be a query, or at most {TEXT_MAX} visible characters")
    return RunCriteria(call.namespace, query, text, request.workflow_type, request.status)
