"""A client of the in-process server that sends all required headers by default, and may leave them out."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from penstock.server.reference.openapi import document
from tests.support import asgi, live

Header = tuple[str, str | bytes]


def _documented() -> list[tuple[str, re.Pattern[str], set[int]]]:
    return [
        (
            method.upper(),
            re.compile(re.sub(r"{\w+}", "[^/]+", path)),
            {int(each) for each in item["responses"]},
        )
        for path, operations in document()["paths"].items()
        for method, item in operations.items()
    ]


_DOCUMENTED = _documented()


def _check_documented(method: str, target: str, reply: asgi.Answer) -> None:
    """Check each response of all tests against the OpenAPI document."""
    path = unquote(target.partition("?")[0])
    promised = next((each[2] for each in _DOCUMENTED if each[0] == method and each[1].fullmatch(path)), None)
    if promised is not None and reply.status:
        assert reply.status in promised, (
            f"{method} {target[:200]} answers {reply.status}, which is not documented"
        )


@dataclass(frozen=True, slots=True)
class Reply(asgi.Answer):
    def expect(self, status: int, reason: str | None = None) -> Reply:
        """This reply if it has the expected status."""
        assert (self.status, self.reason) == (status, reason), self.raw[:1000]
        return self

    def refused(self, status: int, reason: str) -> Reply:
        """This reply if it is an error in the format of the contract; a 422 names its fields twice."""
        self.expect(status, reason)
        body = self.json
        assert body["message"]
        assert body["message"] == body["error"]
        assert self.headers["content-type"] == "application/json"
        if status == 422:
            assert body["errors"]
            assert body["errors"] == body["validation_errors"]
            assert all(isinstance(each, list) and each for each in body["errors"].values())
        return self

    def refused_fields(self, *fields: str) -> Reply:
        """This reply if it is a 422 about exactly these fields."""
        self.refused(422, "validation_failed")
        assert sorted(self.json["errors"]) == sorted(fields)
        return self


class Client:
    """Calls the application without a socket."""

    def __init__(self, app: Any) -> None:
        self.app: asgi.App = app

    async def request(
        self,
        method: str,
        target: str,
        raw: bytes = b"",
        *,
        role: str | None = "operator",
        namespace: str | None = None,
        headers: Mapping[str, str | bytes | None] | None = None,
        more_headers: Sequence[Header] = (),
        chunks: Sequence[bytes] | None = None,
        hangs_up: bool = False,
    ) -> Reply:
        """Send a request. Headers with the value None are left out; `more_headers` may repeat others."""
        found: dict[str, str | bytes | None] = {"host": "127.0.0.1:8080"}
        if role is not None:
            found |= {name.lower(): value for name, value in live.headers(role, namespace).items()}
        if raw:
            found["content-type"] = "application/json"
            found["content-length"] = str(len(raw))
        found |= {name.lower(): value for name, value in (headers or {}).items()}
        lines = [(name, value) for name, value in found.items() if value is not None]
        answer = await asgi.call(
            self.app,
            method,
            target,
            headers=[*lines, *more_headers],
            chunks=[raw] if chunks is None else chunks,
            hangs_up=hangs_up,
        )
        reply = Reply(answer.status, answer.headers, answer.raw, answer.chunks_read)
        _check_documented(method, target, reply)
        return reply

    async def get(self, target: str, **options: Any) -> Reply:
        return await self.request("GET", target, **options)

    async def post(self, target: str, body: object, **options: Any) -> Reply:
        return await self.request("POST", target, json.dumps(body).encode(), **options)

    async def patch(self, target: str, body: object, **options: Any) -> Reply:
        return await self.request("PATCH", target, json.dumps(body).encode(), **options)

    async def contents(self, namespace: str = "default") -> dict[str, Any]:
        """Everything that a rejected request might have changed, except what changes with time."""
        found: dict[str, Any] = {}
        for name, target, part, shown in (
            ("namespaces", "/api/namespaces", "namespaces", ("name", "description", "retention_days")),
            ("workflows", "/api/workflows?page_size=200", "workflows", ("workflow_id", "run_id", "status")),
            ("activities", "/api/activities?page_size=200", "activities", ("activity_id", "status")),
            ("workers", "/api/workers", "workers", ("worker_id", "task_queue", "build_id")),
            ("queues", "/api/task-queues", "task_queues", ("name",)),
            ("builds", "/api/task-queues/orders/build-ids", "build_ids", ("build_id", "drain_intent")),
        ):
            listed = (await self.get(target, namespace=namespace)).expect(200).json[part]
            found[name] = [[each.get(field) for field in shown] for each in listed]
        return found

    @contextlib.asynccontextmanager
    async def unchanged(self, *namespaces: str) -> AsyncIterator[None]:
        """Check that nothing in the block changes the state of the server."""
        names = namespaces or ("default",)
        before = [await self.contents(name) for name in names]
        yield
        assert [await self.contents(name) for name in names] == before
