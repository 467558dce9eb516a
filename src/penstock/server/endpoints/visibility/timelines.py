"""The timeline of a run."""

from __future__ import annotations

from penstock.core.timestamps import iso, iso_or_none
from penstock.engine.visibility import timelines
from penstock.engine.visibility.timelines import LaneSelection
from penstock.server.endpoints.workflows.addresses import address
from penstock.server.operation import OperationCall, Response
from penstock.wire.request_parser import field_error
from penstock.wire.visibility import timelines as wire


async def read(call: OperationCall) -> Response:
    request: wire.ReadTimeline = call.query
    if request.after_step and request.type is None:
        raise field_error("after_step", "needs type")
    selection = LaneSelection(request.type, request.after_step, request.width)
    found = await timelines.read(call.ctx, address(call), selection)
    run, times = found.run, found.times
    start_ms = times.started_at_ms
    return Response(
        {
            "workflow_id": run.workflow_id,
            "run_id": run.run_id,
            "status": run.status.value,
            "as_of": iso(times.now_ms),
            "started_at": iso(start_ms),
            "closed_at": iso_or_none(run.closed_at_ms),
            "length_ms": times.end_ms - start_ms,
            "complete": found.is_complete,
            "lane_count": found.lane_count,
            "next_after_step": found.next_step,
            "time_spent": wire.spent_body(found.spent),
            "lanes": [wire.lane(each, start_ms) for each in found.lanes],
        }
    )
