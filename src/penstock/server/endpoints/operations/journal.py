"""The journal of leases."""

from __future__ import annotations

import json

from penstock.engine.operations import journal
from penstock.server.operation import OperationCall, Response
from penstock.wire.limits.limit_requests import ReadJournal


async def read(call: OperationCall) -> Response:
    """A page of journal lines with their numbers; `next_after` is the parameter of the next page."""
    query: ReadJournal = call.query
    lines = await journal.page(call.ctx, query.after, query.limit)
    return Response(
        {
            "lines": [{"seq": seq} | json.loads(line) for seq, line in lines],
            "next_after": lines[-1][0] if len(lines) == query.limit else None,
        }
    )
