"""The ASGI application: operations as routes, and the pages `/docs`, `/openapi.json` and `/metrics`."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any

import msgspec

from penstock.errors import NotFound, PenstockError, Reason
from penstock.server.auth import fold_headers
from penstock.server.handler import (
    COMMON_HEADERS,
    Endpoint,
    Receive,
    Scope,
    Send,
    ServerContext,
    check_host,
    respond,
)
from penstock.server.operations.table import OPERATIONS
from penstock.server.problems import body_of, status_of
from penstock.server.reference.openapi import document
from penstock.server.reference.page import reference_page
from penstock.server.routing import Routes

_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
}


class Application:
    """Serves every request; unknown paths and methods get an error body like any other."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server
        by_path: dict[str, dict[str, Endpoint]] = {}
        for operation in OPERATIONS:
            by_path.setdefault(operation.path, {})[operation.method] = Endpoint(server, operation)
        self._routes = Routes({path: _Methods(methods) for path, methods in by_path.items()})
        self._pages = _pages(server)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        page = self._pages.get(scope["path"])
        if page is not None and scope["method"] in ("GET", "HEAD"):
            await self._send_page(page, scope, receive, send)
            return
        path, method = scope["raw_path"].decode("latin-1"), scope["method"]
        found = self._routes.find(path, lambda each: each.takes(method)) or self._routes.find(path)
        if found is None:
            await _not_found(send)
            return
        methods, scope["path_params"] = found
        await methods(scope, receive, send)

    async def _send_page(self, page: Any, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            check_host(self._server, fold_headers(scope["headers"]))
        except PenstockError as error:
            await _send_error(error, send, {})
            return
        await page(scope, receive, send)


class _Methods:
    """The operations of one path by method."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = endpoints

    def takes(self, method: str) -> bool:
        return method in self._endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        allowed = ", ".join(sorted(self._endpoints))
        error = PenstockError(Reason.METHOD_NOT_ALLOWED, f"Method not allowed; this path supports {allowed}.")
        await _send_error(error, send, {"Allow": allowed})


async def _not_found(send: Send) -> None:
    error = NotFound(Reason.NOT_FOUND, "There is no such path. See /docs or /openapi.json for all paths.")
    await _send_error(error, send, {})


async def _send_error(error: PenstockError, send: Send, headers: dict[str, str]) -> None:
    raw = msgspec.json.encode(body_of(error))
    await respond(send, status_of(error), COMMON_HEADERS | headers, raw)


class _Page:
    def __init__(self, content_type: str, raw: bytes) -> None:
        self._headers = _PAGE_HEADERS | {"Content-Type": content_type}
        self._raw = raw

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, dict(self._headers), self._raw)


class _MetricsPage:
    """Rendered in a thread, because it takes long with many series."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._server.metrics.open_polls.set(self._server.dispatcher.open_polls)
        self._server.metrics.expose_maintenance(self._server.ctx.upkeep)
        raw = await asyncio.to_thread(self._server.metrics.render)
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Cache-Control": "no-store"}
        await respond(send, 200, headers, raw)


def _pages(server: ServerContext) -> dict[str, Any]:
    folder = files("penstock.server") / "pages"
    openapi = document(server.ctx.settings.auth.driver)
    html = _Page("text/html; charset=utf-8", reference_page(openapi))
    return {
        "/": html,
        "/docs": html,
        "/docs/page.css": _Page("text/css; charset=utf-8", (folder / "docs.css").read_bytes()),
        "/favicon.ico": _Page("image/svg+xml", (folder / "icon.svg").read_bytes()),
        "/openapi.json": _Page("application/json", msgspec.json.encode(openapi)),
        "/metrics": _MetricsPage(server),
    }
