"""Reads all pages of a list as one response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.cli.output.exits import CommandError
from penstock.cli.transport.connection import ServerConnection, ServerResponse

LIST_PAGE_MAX = 200
"""Most rows that the server puts on a page of a list."""


def read_pages(
    connection: ServerConnection,
    *path: str,
    rows: str,
    limit: int | None,
    page_max: int,
    query: Mapping[str, object] | None = None,
    token: str | None = None,
) -> ServerResponse:
    """Return up to `limit` rows (None: all), from a page token on, as one response; a single page is unchanged."""
    query = query or {}
    answer = _page(connection, path, rows, query, _page_size(limit, 0, page_max), token)
    if not _wants_more(answer, rows, limit):
        return answer
    body = dict(answer.body)
    collected: list[Any] = list(body[rows])
    seen = {body["next_page_token"]}
    while body.get("next_page_token") and (limit is None or len(collected) < limit):
        size = _page_size(limit, len(collected), page_max)
        following = _page(connection, path, rows, query, size, body["next_page_token"]).body
        collected.extend(following[rows])
        body["next_page_token"] = following.get("next_page_token")
        if body["next_page_token"] in seen:
            raise CommandError(
                "repeated_page_token", "The server repeats a page, so the list cannot be finished."
            )
        seen.add(body["next_page_token"])
    body[rows] = collected
    for counter in (key for key in body if key.endswith("_count")):
        body[counter] = len(collected)
    return ServerResponse(answer.status, json.dumps(body, ensure_ascii=False), body)


def _page(
    connection: ServerConnection,
    path: tuple[str, ...],
    rows: str,
    query: Mapping[str, object],
    size: int,
    token: str | None,
) -> ServerResponse:
    answer = connection.get(*path, query={**query, "page_size": size, "next_page_token": token})
    if not isinstance(answer.body.get(rows), list):
        raise CommandError("unexpected_answer", f"The server's answer has no list of {rows}.")
    return answer


def _page_size(limit: int | None, have: int, page_max: int) -> int:
    return page_max if limit is None else min(page_max, limit - have)


def _wants_more(answer: ServerResponse, rows: str, limit: int | None) -> bool:
    return bool(answer.body.get("next_page_token")) and (limit is None or len(answer.body[rows]) < limit)
