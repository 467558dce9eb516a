"""The time series of a task queue."""

from __future__ import annotations

from penstock.core.model import TaskKind
from penstock.core.series.samples import SeriesMetric
from penstock.core.timestamps import instant, iso
from penstock.engine.visibility import queue_series
from penstock.server.operation import OperationCall, Response
from penstock.wire.request_parser import field_error
from penstock.wire.visibility import series as wire


async def read(call: OperationCall) -> Response:
    request: wire.ReadSeries = call.query
    from_ms, to_ms = _moment("from", request.from_), _moment("to", request.to)
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise field_error("to", "must be after from")
    found = await queue_series.read(
        call.ctx, call.namespace, request.queue, TaskKind(request.kind), from_ms, to_ms
    )
    metrics = tuple(SeriesMetric) if request.metric is None else (SeriesMetric(request.metric),)
    step_s = found.resolution.step_s
    return Response(
        {
            "task_queue": request.queue,
            "kind": request.kind,
            "as_of": iso(found.now_ms),
            "from": iso(found.from_ms),
            "to": iso(found.to_ms),
            "resolution_seconds": step_s,
            "metrics": {
                each.value: wire.waits_of(found.waits)
                if each is SeriesMetric.WAITS
                else wire.series_of(each, found.samples, step_s)
                for each in metrics
            },
        }
    )


def _moment(field: str, text: str | None) -> int | None:
    if text is None:
        return None
    found = instant(text)
    if found is None or found < 0:
        raise field_error(field, "must be an instant in ISO 8601, such as 2026-01-31T12:00:00Z")
    return found
