"""The fairness keys of a queue, page by page."""

from __future__ import annotations

from penstock.core.model import TaskKind
from penstock.core.scheduling.backlog import KeyFilter
from penstock.core.timestamps import iso
from penstock.engine.visibility import queue_keys
from penstock.server.endpoints.matching.backlogs import idle_key, waiting_key
from penstock.server.endpoints.page_tokens import decode_key_place, encode_key_place
from penstock.server.operation import OperationCall, Response, text_path
from penstock.wire.limits.limit_requests import ListKeys


async def list_page(call: OperationCall) -> Response:
    query: ListKeys = call.query
    name, kind = text_path(call, "name"), TaskKind(query.task_queue_type)
    wanted = KeyFilter(query.search, query.key)
    after = decode_key_place(query.next_page_token)
    page = await queue_keys.page(call.ctx, call.namespace, name, kind, wanted, after, query.page_size)
    return Response(
        {
            "task_queue": name,
            "task_queue_type": kind.value,
            "as_of": iso(page.now_ms),
            "keys": [
                *(waiting_key(each, page.line, page.now_ms) for each in page.line.keys),
                *(idle_key(each, page.line.queue, page.now_ms) for each in page.idle),
            ],
            "next_page_token": None if page.after is None else encode_key_place(page.after),
        }
    )
