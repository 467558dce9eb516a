"""Finding runs: lists and counts under filters and queries."""

from __future__ import annotations

import re

from penstock.engine import visibility
from penstock.engine.visibility import Wanted
from penstock.server.endpoints.paging import next_start, place_token
from penstock.server.operation import Answer, Body, Call
from penstock.wire import rendering
from penstock.wire.fields import PRINTABLE
from penstock.wire.parsing import refuse
from penstock.wire.visibility import CountWorkflows, FindWorkflows, ListWorkflows

TEXT_MAX = 255


async def list_all(call: Call) -> Answer:
    request: ListWorkflows = call.query
    after = next_start(request.next_page_token)
    found = await visibility.page(call.house, wanted(call, request), after, request.page_size)
    return Answer(
        {
            "workflows": [rendering.run_summary(run) for run in found.runs],
            "workflow_count": len(found.runs),
            "next_page_token": None if found.after is None else place_token(found.after),
        }
    )


async def count(call: Call) -> Answer:
    request: CountWorkflows = call.query
    counted = await visibility.count(call.house, wanted(call, request))
    body: Body = {
        "count": counted.total,
        "complete": counted.complete,
        "at_least": None if counted.complete else counted.total,
    }
    if request.group_by is not None:
        body["groups"] = dict(sorted(counted.by_status.items()))
    return Answer(body)


def wanted(call: Call, request: FindWorkflows) -> Wanted:
    """What a list is narrowed by. A text that is no query is looked for in ids and business keys."""
    query = None if request.query is None else visibility.read_query_or_text(request.query)
    text = request.query if query is None else None
    if text is not None and (len(text) > TEXT_MAX or not re.match(PRINTABLE, text)):
        raise refuse("query", f"must be a query, or at most {TEXT_MAX} visible characters")
    return Wanted(call.namespace, query, text, request.workflow_type, request.status)
