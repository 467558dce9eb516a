"""What an id or a name may mean."""

from __future__ import annotations

from penstock.engine.visibility import locate
from penstock.engine.visibility.locate import LocatedItem
from penstock.server.operation import Body, OperationCall, Response
from penstock.wire.visibility.searches import LocateId


async def read(call: OperationCall) -> Response:
    query: LocateId = call.query
    found = await locate.everything(call.ctx, call.namespace, query.id)
    return Response({"namespace": call.namespace, "id": query.id, "found": [_item(each) for each in found]})


def _item(each: LocatedItem) -> Body:
    run = each.run
    return {
        "kind": each.kind.value,
        "id": each.name,
        "workflow_id": None if run is None else run.workflow_id,
        "run_id": None if run is None else run.run_id,
        "status": None if run is None else run.status.value,
    }
