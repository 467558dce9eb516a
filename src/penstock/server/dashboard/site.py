"""The dashboard's requests: who asks, is it allowed, and what is answered.

    Site.__call__             host, method, errors
      static files            public: they hold nothing but our own code
      sign-in and sign-out    `sessions`
      a page                  one snapshot (`_read`), rendered whole, or as a stream (`live`)
      an action               CSRF and origin first, then the operation of the API

Errors are pages for people and fragments for htmx, which swaps every answer; never JSON. All answers carry the same
security headers: no inline script or style, no other host, no frame.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec
import structlog

from penstock.core.model import Namespace
from penstock.core.permissions import AuthPolicy, Principal, Role
from penstock.errors import (
    Exhausted,
    Forbidden,
    InvalidInput,
    NotFound,
    PenstockError,
    Reason,
    Unauthenticated,
    ValidationFailed,
)
from penstock.ports.gather import gather, remembering
from penstock.ports.store import Tx
from penstock.server.dashboard import page_templates
from penstock.server.dashboard.assets import ASSETS, PREFIX
from penstock.server.dashboard.live import STREAM_S, LiveHub, Panels, Scene
from penstock.server.dashboard.page_rows import Action, Page
from penstock.server.dashboard.pages import ACTIONS, PAGES
from penstock.server.dashboard.sessions import (
    Sessions,
    SignedIn,
    Visitor,
    check_change,
    check_origin,
    cookie,
    read_cookie,
)
from penstock.server.dashboard.snapshot import SnapshotStore
from penstock.server.dashboard.view import Act, View
from penstock.server.handler import ServerContext
from penstock.server.problems import status_of
from penstock.server.request_reader import (
    ClientDisconnected,
    Receive,
    Scope,
    check_host,
    client_address,
    fold_headers,
    read_body,
    read_parameters,
)
from penstock.server.response_writer import Send, respond
from penstock.server.routing import Routes
from penstock.server.versions import VERSIONS

ROOT: Final = "/ui"
FORM_BYTES_MAX: Final = 65_536
LIVE_PARAMETER: Final = "_live"
NAMESPACES_SHOWN: Final = 100
SENDING_S: Final = STREAM_S + 10.0
"""A browser that has not taken all of a stream by then is not listening; nothing more is made for it."""
CLOSING_S: Final = 1.0
"""How long a stream may take to end when the server stops."""
_HTML: Final = "text/html; charset=utf-8"
_SECURITY: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
}
_SPACE_SAVED_FROM: Final = 1024
log = structlog.get_logger("penstock.dashboard")


@dataclass(frozen=True, slots=True)
class _PageRequest:
    """A request as a page or an action gets it."""

    method: str
    target: str
    """The path below `/ui`."""
    headers: Mapping[str, str]
    query: Mapping[str, str]
    over_tls: bool
    address: str

    @property
    def is_fragment(self) -> bool:
        """Whether htmx asked, which wants a part of a page."""
        return self.headers.get("hx-request") == "true"


class Site:
    """Serves everything below `/ui`.

    Args:
        server: What all endpoints share.
        auth: The tokens that open a session.
    """

    def __init__(self, server: ServerContext, auth: AuthPolicy) -> None:
        self._server = server
        self.sessions = Sessions(server.ctx, auth)
        self._pages: Routes[Page] = Routes({page.path: page for page in PAGES})
        self._actions: Routes[Action] = Routes({action.path: action for action in ACTIONS})
        self.live = LiveHub(self._panels)

    def close(self) -> None:
        """End all streams, because the server stops."""
        self.live.close()

    def one_time_link(self, url: str, name: str) -> str | None:
        """An address that signs somebody in once, within a minute; None where nobody needs to, or can.

        Args:
            url: The address of the server.
            name: The author of the session's changes.
        """
        if not self.sessions.is_supported:
            return None
        if not self.sessions.needs_sign_in:
            return f"{url}{ROOT}"
        code = self.sessions.one_time_code(name, self._server.clock.now_ms())
        return None if code is None else f"{url}{ROOT}/sign-in#code={code}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request: _PageRequest | None = None
        try:
            request = self._request(scope)
            await self._answer(request, receive, send)
        except ClientDisconnected:
            return
        except Exception as error:
            await self._refuse(error, request, send)

    def _request(self, scope: Scope) -> _PageRequest:
        headers = fold_headers(scope["headers"])
        listen = self._server.ctx.settings.listen
        check_host(headers, listen.allowed_hosts)
        client = scope.get("client")
        proxied = client is not None and listen.trusts_proxy(str(client[0]))
        scheme = headers.get("x-forwarded-proto", "") if proxied else scope.get("scheme", "http")
        raw_query = scope.get("query_string", b"").decode("latin-1")
        return _PageRequest(
            method=str(scope["method"]),
            target=scope["raw_path"].decode("latin-1").removeprefix(ROOT) or "/",
            headers=headers,
            query=read_parameters(raw_query) if raw_query else {},
            over_tls=scheme == "https",
            address=client_address(scope, headers, listen),
        )

    async def _answer(self, request: _PageRequest, receive: Receive, send: Send) -> None:
        if not self.sessions.is_supported:
            raise NotFound(
                Reason.NOT_FOUND,
                "This server has no dashboard: its requests are signed (DW_AUTH_DRIVER=signature), which a browser "
                "cannot do. The command line and the API show the same.",
            )
        if request.method in ("GET", "HEAD"):
            await self._get(request, receive, send)
        elif request.method == "POST":
            await self._post(request, receive, send)
        else:
            raise PenstockError(Reason.METHOD_NOT_ALLOWED, "The dashboard has GET and POST only.")

    async def _get(self, request: _PageRequest, receive: Receive, send: Send) -> None:
        if request.target.startswith(PREFIX.removeprefix(ROOT)):
            await _send_asset(request, send)
            return
        visitor = await self.sessions.find(read_cookie(request.headers))
        if request.target == "/sign-in":
            await self._sign_in_page(request, visitor, send)
            return
        if visitor is None:
            await self._not_signed_in(request, send)
            return
        found = self._pages.find(request.target)
        if found is None:
            raise NotFound(Reason.NOT_FOUND, "There is no such page.")
        page, path = found
        namespace = await self._namespace(request)
        if LIVE_PARAMETER in request.query and page.is_live:
            await self._stream(page, path, request, visitor, namespace, receive, send)
            return
        values = await self._read(page, path, request.query, namespace, visitor.principal)
        shell = self._shell(page, request, visitor, namespace)
        text = await asyncio.to_thread(page_templates.page, page.template, shell | values)
        await _send_html(request, send, 200, text)

    async def _stream(
        self,
        page: Page,
        path: Mapping[str, str],
        request: _PageRequest,
        visitor: Visitor,
        namespace: str,
        receive: Receive,
        send: Send,
    ) -> None:
        query = tuple(
            sorted((k, v) for k, v in request.query.items() if k not in (LIVE_PARAMETER, "namespace"))
        )
        scene = Scene(page.path, tuple(sorted(path.items())), query, namespace, visitor.principal.role.value)
        headers = _SECURITY | {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        await send({"type": "http.response.start", "status": 200, "headers": _lines(headers)})
        events = self.live.stream(scene, visitor.session_id or request.address)
        await send_events(events, self.live.closed(), receive, send)

    async def _panels(self, scene: Scene) -> Panels:
        """The live panels of a scene; called by `live` once for all who look at it."""
        page = next(each for each in PAGES if each.path == scene.page)
        role = Role(scene.role)
        acts_as = frozenset({Role.OPERATOR}) if role is Role.VIEWER else frozenset({role})
        principal = Principal(role.value, role, acts_as)
        values = await self._read(page, dict(scene.path), dict(scene.query), scene.namespace, principal)
        shared = _shared(scene.namespace, role, self._server)
        return await asyncio.to_thread(page_templates.panels, page.template, shared | values)

    async def _read(
        self,
        page: Page,
        path: Mapping[str, str],
        query: Mapping[str, str],
        namespace: str,
        principal: Principal,
    ) -> dict[str, Any]:
        """The values of a page, all from one transaction."""
        server = self._server
        ctx = server.ctx
        sees = principal.role is not Role.VIEWER or ctx.settings.dashboard.viewers_see_payloads

        async def operation(tx: Tx) -> dict[str, Any]:
            snapshot = msgspec.structs.replace(ctx, store=SnapshotStore(ctx.store, tx))
            view = View(server, snapshot, principal, namespace, tx.now_ms, path, query, sees)
            # What nearly every page needs is asked for with its first reads, and remembered.
            values, namespaces, _ = await gather(page.load(view), tx.namespaces.list(), tx.scopes.admission())
            found = {"namespaces": _shown(namespaces, namespace)}
            return found | {"now_ms": tx.now_ms, "query": query} | dict(values)

        return await ctx.store.read(lambda tx: remembering(operation(tx)), long=True)

    def _shell(self, page: Page, request: _PageRequest, visitor: Visitor, namespace: str) -> dict[str, Any]:
        """What surrounds a page."""
        if page.is_fragment:
            return _shared(namespace, visitor.principal.role, self._server) | {"visitor": visitor}
        live = page_templates.link(
            *_segments(request.target), **(dict(request.query) | {LIVE_PARAMETER: "1"})
        )
        return _shared(namespace, visitor.principal.role, self._server) | {
            "visitor": visitor,
            "navigation": page.navigation,
            "live_url": live if page.is_live else None,
            "version": VERSIONS,
            "insecure": not request.over_tls and not self._server.ctx.settings.listen.is_loopback,
        }

    async def _namespace(self, request: _PageRequest) -> str:
        namespace = (request.query.get("namespace") or self._server.ctx.settings.default_namespace).lower()
        await self._server.namespaces.require(namespace)
        return namespace

    async def _sign_in_page(
        self,
        request: _PageRequest,
        visitor: Visitor | None,
        send: Send,
        problem: str | None = None,
        wanted: str = "",
    ) -> None:
        if visitor is not None and problem is None:
            await _redirect(send, _next(request.query))
            return
        values = {
            "host": request.headers.get("host", ""),
            "problem": problem,
            "visitor": None,
            "next": wanted or request.query.get("next", ""),
        }
        status = 200 if problem is None else 401
        await _send_html(request, send, status, page_templates.page("sign_in.html", values))

    async def _not_signed_in(self, request: _PageRequest, send: Send) -> None:
        """Ask for a sign-in; or load the page again, if a link of another site led here without the cookie."""
        if request.is_fragment or LIVE_PARAMETER in request.query:
            raise Unauthenticated(Reason.UNAUTHORIZED, "You are signed out. Sign in again to go on.")
        from_elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
        if from_elsewhere and request.headers.get("sec-fetch-mode") == "navigate":
            await _send_html(request, send, 200, page_templates.page("again.html", {}))
            return
        wanted = page_templates.link(*_segments(request.target), **request.query)
        after = f"?{urlencode({'next': wanted})}" if wanted != ROOT else ""
        await _redirect(send, f"{ROOT}/sign-in{after}")

    async def _post(self, request: _PageRequest, receive: Receive, send: Send) -> None:
        form = await _read_form(request, receive)
        if request.target == "/session":
            await self._sign_in(request, form, send)
            return
        visitor = await self.sessions.find(read_cookie(request.headers))
        if visitor is None:
            raise Unauthenticated(
                Reason.UNAUTHORIZED,
                "Your session has ended, so nothing was changed. Sign in, and do that again.",
            )
        if request.target == "/session/end":
            check_origin(request.headers)
            await self.sessions.sign_out(visitor)
            ended = cookie(request.headers, "", over_tls=request.over_tls)
            await _redirect(send, f"{ROOT}/sign-in", {"Set-Cookie": ended})
            return
        check_change(visitor, request.headers)
        found = self._actions.find(request.target)
        if found is None:
            raise NotFound(Reason.NOT_FOUND, "There is no such action.")
        if not visitor.can_change:
            raise Forbidden(Reason.FORBIDDEN, "Viewers change nothing. Ask somebody who is an operator.")
        action, path = found
        namespace = await self._namespace(request)
        outcome = await action.act(Act(self._server, visitor, namespace, path, form))
        values = {"outcome": outcome}
        await _send_html(request, send, 200, page_templates.page("outcome.html", values))

    async def _sign_in(self, request: _PageRequest, form: Mapping[str, str], send: Send) -> None:
        check_origin(request.headers)
        now_ms = self._server.clock.now_ms()
        try:
            signed_in = await self._signed_in(form, now_ms)
        except (Unauthenticated, InvalidInput) as error:
            message = error.message
            if isinstance(error, Unauthenticated):
                message = self._counted(error, request.address, now_ms)
            if request.is_fragment:
                raise type(error)(error.reason, message) from None
            await self._sign_in_page(request, None, send, problem=message, wanted=form.get("next", ""))
            return
        secret = cookie(request.headers, signed_in.secret, over_tls=request.over_tls)
        if request.is_fragment:
            csrf = {"csrf": signed_in.visitor.csrf}
            text = page_templates.page("signed_in.html", csrf)
            await _send_html(request, send, 200, text, {"Set-Cookie": secret})
            return
        await _redirect(send, _next(form), {"Set-Cookie": secret})

    async def _signed_in(self, form: Mapping[str, str], now_ms: int) -> SignedIn:
        if code := form.get("code"):
            return await self.sessions.sign_in_once(code, now_ms)
        return await self.sessions.sign_in(form.get("token", "").strip(), form.get("name", ""))

    def _counted(self, error: Unauthenticated, address: str, now_ms: int) -> str:
        """The message for a failed sign-in, which counts like any failed authentication of the address."""
        try:
            self._server.authenticator.refuse(error, address, now_ms)
        except (Unauthenticated, Exhausted) as refusal:
            return refusal.message

    async def _refuse(self, error: Exception, request: _PageRequest | None, send: Send) -> None:
        if not isinstance(error, PenstockError):
            log.error("a page of the dashboard failed", exc_info=error)
            error = PenstockError(Reason.SERVER_ERROR, "The server failed; see its log for the cause.")
        values: dict[str, Any] = {
            "problem": error,
            "fields": error.details.get("errors", {}) if isinstance(error, ValidationFailed) else {},
            "now_ms": self._server.clock.now_ms(),
            "signing_in": request is not None and request.target == "/session",
        }
        template = "problem.html" if request is not None and request.is_fragment else "problem_page.html"
        await _send_html(request, send, status_of(error), page_templates.page(template, values))


def _shared(namespace: str, role: Role, server: ServerContext) -> dict[str, Any]:
    """What whole pages and live panels both know; the same for all visitors of a role."""
    default = server.ctx.settings.default_namespace
    return {
        "namespace": namespace,
        "ns": None if namespace == default else namespace,
        "role": role.value,
        "can_change": role is not Role.VIEWER,
        "is_admin": role is Role.ADMIN,
        "server_version": server.ctx.settings.server_id,
        "store_kind": server.ctx.settings.store.kind.value,
    }


def _shown(namespaces: Sequence[Namespace], current: str) -> list[str]:
    """The names that the menu lists: the first ones, and that of the page."""
    names = [each.name for each in namespaces]
    first = names[:NAMESPACES_SHOWN]
    return first if current in first or current not in names else [*first, current]


def _next(values: Mapping[str, str]) -> str:
    """The page to show after signing in: the one that was asked for, if it is one of ours."""
    wanted = values.get("next", "")
    is_ours = (
        wanted.startswith(f"{ROOT}/") and wanted.isascii() and wanted.isprintable() and "\\" not in wanted
    )
    return wanted if is_ours and ".." not in wanted else ROOT


def _segments(target: str) -> list[str]:
    from urllib.parse import unquote

    return [unquote(each) for each in target.strip("/").split("/") if each]


async def _read_form(request: _PageRequest, receive: Receive) -> dict[str, str]:
    raw = await read_body(receive, request.headers, FORM_BYTES_MAX)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if raw and media != "application/x-www-form-urlencoded":
        raise InvalidInput(Reason.UNSUPPORTED_MEDIA_TYPE, "The dashboard takes forms only.")
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except (UnicodeDecodeError, ValueError):
        raise InvalidInput(Reason.MALFORMED_REQUEST, "The form is malformed.") from None
    return dict(pairs)


async def _send_asset(request: _PageRequest, send: Send) -> None:
    asset = ASSETS.find(ROOT + request.target)
    if asset is None:
        raise NotFound(Reason.NOT_FOUND, "There is no such file.")
    headers = _SECURITY | {
        "Content-Type": asset.media,
        "Cache-Control": "public, max-age=31536000, immutable",
        "ETag": asset.etag,
        "Vary": "Accept-Encoding",
    }
    if request.headers.get("if-none-match") == asset.etag:
        await respond(send, 304, headers, b"")
    elif "gzip" in request.headers.get("accept-encoding", ""):
        await respond(send, 200, headers | {"Content-Encoding": "gzip"}, asset.packed)
    else:
        await respond(send, 200, headers, asset.raw)


async def _send_html(
    request: _PageRequest | None, send: Send, status: int, text: str, more: Mapping[str, str] | None = None
) -> None:
    raw = text.encode("utf-8", "replace")
    headers = _SECURITY | {"Content-Type": _HTML, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    headers |= dict(more or {})
    accepts = request is not None and "gzip" in request.headers.get("accept-encoding", "")
    if accepts and len(raw) >= _SPACE_SAVED_FROM:
        raw, headers = gzip.compress(raw, 4, mtime=0), headers | {"Content-Encoding": "gzip"}
    await respond(send, status, headers, raw)


async def _redirect(send: Send, target: str, more: Mapping[str, str] | None = None) -> None:
    headers = _SECURITY | {"Location": target, "Cache-Control": "no-store"} | dict(more or {})
    await respond(send, 303, headers, b"")


async def send_events(
    events: AsyncIterator[bytes], closed: Coroutine[Any, Any, None], receive: Receive, send: Send
) -> None:
    """Send events until there are no more, the browser leaves or takes none, or the server stops.

    Sending waits for a browser that reads slowly. Nothing is kept for it meanwhile: what it gets next is the newest.
    """

    async def forward() -> None:
        async for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    sending = asyncio.create_task(forward(), name="penstock-stream")
    leaving = asyncio.create_task(_disconnected(receive), name="penstock-stream-end")
    closing = asyncio.create_task(closed, name="penstock-stream-closing")
    try:
        await asyncio.wait(
            {sending, leaving, closing}, timeout=SENDING_S, return_when=asyncio.FIRST_COMPLETED
        )
        if closing.done() and not leaving.done():
            await asyncio.wait({sending, leaving}, timeout=CLOSING_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving, closing):
            task.cancel()
        await asyncio.gather(sending, leaving, closing, return_exceptions=True)
        await events.aclose()  # type: ignore[attr-defined]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _lines(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
