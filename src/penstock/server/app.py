"""The ASGI application: operations as routes, and the pages `/docs`, `/openapi.json` and `/metrics`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import NotFound, PenstockError, Reason
from penstock.server.dashboard import Dashboard
from penstock.server.handler import Endpoint, ServerContext
from penstock.server.operations.table import OPERATIONS
from penstock.server.problems import body_of, status_of
from penstock.server.process_metrics import ProcessMetrics
from penstock.server.reference.openapi import document
from penstock.server.reference.page import reference_page
from penstock.server.request_reader import Receive, Scope, check_host, fold_headers
from penstock.server.response_writer import COMMON_HEADERS, Send, respond
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
    """Serves every request; unknown paths and methods get an error body like any other.

    Args:
        server: What all endpoints share.
        dashboard: Serves what is below `/ui`; None where there is no dashboard.
    """

    def __init__(self, server: ServerContext, dashboard: Dashboard | None = None) -> None:
        self._server = server
        self.dashboard = dashboard
        by_path: dict[str, dict[str, Endpoint]] = {}
        for operation in OPERATIONS:
            by_path.setdefault(operation.path, {})[operation.method] = Endpoint(server, operation)
        self._routes = Routes(by_path)
        self._literal = {
            (path.encode(), method): endpoint
            for path, methods in by_path.items()
            for method, endpoint in methods.items()
            if "{" not in path
        }
        self._pages = _pages(server)

    @contextlib.asynccontextmanager
    async def share_metrics(self, path: Path) -> AsyncIterator[None]:
        """Answer `/metrics` for all processes behind one socket, for the duration of the block.

        Args:
            path: The socket of this process, in the directory of all.
        """
        page: _MetricsPage = self._pages["/metrics"]
        page.shared = ProcessMetrics(path, page.render)
        async with page.shared.serving():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        method = scope["method"]
        endpoint = self._literal.get((scope["raw_path"], method))
        if endpoint is not None:
            await endpoint(scope, receive, send)
            return
        if self.dashboard is not None and (
            scope["raw_path"] == b"/ui" or scope["raw_path"].startswith(b"/ui/")
        ):
            await self.dashboard(scope, receive, send)
            return
        page = self._pages.get(scope["path"])
        if page is not None and method in ("GET", "HEAD"):
            await self._send_page(page, scope, receive, send)
            return
        path = scope["raw_path"].decode("latin-1")
        found = self._routes.find(path, lambda methods: method in methods) or self._routes.find(path)
        if found is None:
            await _not_found(send)
            return
        methods, scope["path_params"] = found
        if method in methods:
            await methods[method](scope, receive, send)
        else:
            await _method_not_allowed(sorted(methods), send)

    async def _send_page(self, page: Any, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            listen = self._server.ctx.settings.listen
            hosts = listen.probe_hosts if isinstance(page, _MetricsPage) else listen.allowed_hosts
            check_host(fold_headers(scope["headers"]), hosts)
        except PenstockError as error:
            await _send_error(error, send, {})
            return
        await page(scope, receive, send)


async def _not_found(send: Send) -> None:
    error = NotFound(Reason.NOT_FOUND, "There is no such path. See /docs or /openapi.json for all paths.")
    await _send_error(error, send, {})


async def _method_not_allowed(methods: list[str], send: Send) -> None:
    allowed = ", ".join(methods)
    error = PenstockError(Reason.METHOD_NOT_ALLOWED, f"Method not allowed; this path supports {allowed}.")
    await _send_error(error, send, {"Allow": allowed})


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
        self.shared: ProcessMetrics | None = None
        """With the metrics of the other processes behind the same socket, if there are any."""

    def render(self) -> bytes:
        """The metrics of this process."""
        self._server.metrics.open_polls.set(self._server.dispatcher.open_polls)
        self._server.metrics.expose_maintenance(self._server.ctx.upkeep)
        return self._server.metrics.render()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.shared is not None:
            raw = await self.shared.collect()
        else:
            raw = await asyncio.to_thread(self.render)
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
