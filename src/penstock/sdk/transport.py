"""Requests to a Penstock server over HTTP: sent again when that is safe, answered or refused with a reason.

Paths begin behind `/api`: `/workflows/order-7`, `/worker/register`. `route` escapes the parts of one.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl as tls
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import count
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from penstock import __version__
from penstock.sdk.failures import ServerRefused, Unreachable, refusal
from penstock.sdk.http.answers import Answer, Garbled, TooMuch
from penstock.sdk.http.connections import Connections, NotConnected

Json = dict[str, Any]

CONTROL_PLANE: Final = ("X-Durable-Workflow-Control-Plane-Version", "2")
WORKER_PLANE: Final = ("X-Durable-Workflow-Protocol-Version", "1.20")
ANSWER_SECONDS: Final = 30.0
MARGIN_SECONDS: Final = 10.0
"""Beyond what the server was asked to wait, before its answer counts as lost."""
RETRY_SECONDS: Final = 30.0
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
TRIED_AGAIN: Final = (429, 500, 502, 503)
"""Statuses that say: not now. A request that may be sent twice is."""
_CLOSED: Final = "This client is closed; connect a new one"
_HEADER_TEXT: Final = re.compile(r"[\x21-\x7e]+")
_LINE_END: Final = re.compile(r"[\r\n\0]")


class Transport(Protocol):
    """How clients and workers reach a server."""

    async def control(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        idempotent: bool,
        timeout_s: float | None = None,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """A request of the control plane. `timeout_s`: how long the server may hold it."""

    async def work(
        self,
        path: str,
        body: Json,
        *,
        idempotent: bool,
        timeout_s: float | None = None,
        method: str = "POST",
        on_send: Callable[[], None] | None = None,
    ) -> Json:
        """A request of the worker plane. `on_send` is called before each time that it is sent."""

    async def close(self) -> None: ...


def route(*parts: str) -> str:
    """A path of these parts, each escaped: none can reach into another."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def base_url(url: str) -> str:
    """The address of a server, checked and without a slash at its end."""
    problem = f"{_shown(url)} is not the address of a server, such as http://127.0.0.1:8080"
    try:
        parts = urlsplit(url.strip())
        parts.port  # noqa: B018 - raises if it is no number
    except ValueError:
        raise ValueError(problem) from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("The address of a server must not contain a password; pass the token as token=…")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(problem)
    path = parts.path.rstrip("/")
    if path.endswith("/api"):
        shorter = f"{parts.scheme}://{parts.netloc}{path.removesuffix('/api')}"
        raise ValueError(
            f"Leave out /api at the end of the address: {shorter}. It is added to every request."
        )
    return f"{parts.scheme}://{parts.netloc}{path}"


def _shown(url: str) -> str:
    return "The text given" if "@" in url else repr(url)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a request is tried again, and the pauses between."""

    seconds: float = RETRY_SECONDS
    first_pause_s: float = FIRST_PAUSE_SECONDS
    longest_pause_s: float = LONGEST_PAUSE_SECONDS

    def pause_s(self, attempt: int, asked_s: float | None, jitter: float) -> float:
        """The pause after an attempt (1, 2, …). What the server asked for is never cut; `jitter` is 0 to 1."""
        grown = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempt - 1, 30))
        own = grown * (0.5 + jitter / 2)
        return own if asked_s is None else asked_s + min(own, 1.0) * jitter


@dataclass(slots=True)
class _Call:
    """One request, the same bytes whenever it is sent."""

    request: bytes = field(repr=False)
    idempotent: bool
    timeout_s: float
    on_send: Callable[[], None] | None = None


class _Trouble(Exception):
    """An attempt that brought no result: what to raise, and whether anything may have happened."""

    def __init__(
        self, error: Exception, *, happened: bool, again: bool, asked_s: float | None = None
    ) -> None:
        super().__init__(str(error))
        self.error, self.happened, self.again, self.asked_s = error, happened, again, asked_s


class HttpTransport:
    """Keeps connections open and shares them between requests. Made anywhere, used in one event loop.

    A request is sent again after a lost connection, or a refusal that says "not now" (429, 503), if it is
    idempotent; else only if no connection could be made. Redirects are not followed, so that a token
    reaches the server that was named and no other.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        token: str | None = None,
        control_token: str | None = None,
        worker_token: str | None = None,
        ssl: tls.SSLContext | bool = True,
        insecure: bool = False,
        patience: Patience | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.url = base_url(url)
        self.namespace = namespace
        self._control_token = control_token or token
        self._worker_token = worker_token or token
        self._ssl = ssl
        self._patience = patience or Patience()
        self._jitter = jitter
        self._connections: Connections | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._check(insecure)
        parts = urlsplit(self.url)
        self._root = f"{parts.path}/api"
        self._heads = {plane: self._head(parts.netloc, plane) for plane in (CONTROL_PLANE, WORKER_PLANE)}

    def __repr__(self) -> str:
        return f"HttpTransport({self.url!r}, namespace={self.namespace!r})"

    def _check(self, insecure: bool) -> None:
        tokens = {"control": self._control_token, "worker": self._worker_token}
        for name, text in (("namespace", self.namespace), *((f"{k} token", v) for k, v in tokens.items())):
            if text is not None and not _HEADER_TEXT.fullmatch(text):
                raise ValueError(f"The {name} must be printable ASCII without spaces")
        parts = urlsplit(self.url)
        plain = parts.scheme == "http" and not _is_loopback(parts.hostname or "")
        if plain and any(tokens.values()) and not insecure:
            raise ValueError(
                f"Refusing to send a token in the clear to {parts.hostname}."
                " Use an https address, or pass insecure=True on a network you trust."
            )

    async def control(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        idempotent: bool,
        timeout_s: float | None = None,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Json:
        """Ask the control plane. `timeout_s` is how long the server may hold the request; a margin is added."""
        head = self._heads[CONTROL_PLANE]
        if idempotency_key is not None:
            head += f"Idempotency-Key: {_one_line(idempotency_key)}\r\n"
        if query is not None:
            path += _queried(query)
        return await self._ask(method, path, body, head, idempotent, timeout_s)

    async def work(
        self,
        path: str,
        body: Json,
        *,
        idempotent: bool,
        timeout_s: float | None = None,
        method: str = "POST",
        on_send: Callable[[], None] | None = None,
    ) -> Json:
        """Ask the worker plane; the path begins with `/worker`. A DELETE is sent without its body."""
        sent = None if method in ("GET", "DELETE") else body
        return await self._ask(method, path, sent, self._heads[WORKER_PLANE], idempotent, timeout_s, on_send)

    async def close(self) -> None:
        """Close all connections; the transport cannot be used again."""
        self._closed = True
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()
            await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    def _head(self, server: str, plane: tuple[str, str]) -> str:
        """The headers that all requests of a plane have. Within a machine nothing is compressed."""
        token = self._control_token if plane is CONTROL_PLANE else self._worker_token
        headers = {
            "Host": server if server.isascii() else server.encode("idna").decode(),
            "User-Agent": f"penstock-python/{__version__}",
            "Accept": "application/json",
            plane[0]: plane[1],
            "X-Namespace": self.namespace,
        }
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if not _is_loopback(urlsplit(self.url).hostname or ""):
            headers["Accept-Encoding"] = "gzip"
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    async def _ask(
        self,
        method: str,
        path: str,
        body: Json | None,
        head: str,
        idempotent: bool,
        timeout_s: float | None,
        on_send: Callable[[], None] | None = None,
    ) -> Json:
        content = b""
        if body is not None:
            content = msgspec.json.encode(body)
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        request = f"{method} {self._root}{path} HTTP/1.1\r\n{head}\r\n".encode() + content
        wait_s = ANSWER_SECONDS if timeout_s is None else timeout_s + MARGIN_SECONDS
        return await self._until_answered(_Call(request, idempotent or method == "GET", wait_s, on_send))

    async def _until_answered(self, call: _Call) -> Json:
        """Patience counts from the first trouble, so that a long poll has all of it."""
        ends_at: float | None = None
        for attempt in count(1):
            try:
                return await self._send(call)
            except _Trouble as trouble:
                now = asyncio.get_running_loop().time()
                ends_at = ends_at or now + self._patience.seconds
                pause_s = self._patience.pause_s(attempt, trouble.asked_s, self._jitter())
                hopeless = not trouble.again or now + pause_s >= ends_at
                if hopeless or (trouble.happened and not call.idempotent):
                    raise trouble.error from trouble.error.__cause__
            await asyncio.sleep(pause_s)
        raise AssertionError("numbers never end")

    async def _send(self, call: _Call) -> Json:
        connections = self._open_connections()
        try:
            answer = await connections.ask(
                call.request, call.timeout_s, again=call.idempotent, on_send=call.on_send
            )
        except (NotConnected, Garbled, OSError) as error:
            raise self._lost(call, error) from None
        return self._read(answer)

    def _open_connections(self) -> Connections:
        if self._closed:
            raise RuntimeError(_CLOSED)
        loop = asyncio.get_running_loop()
        if self._connections is not None and self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(
                    "A client belongs to the event loop that first used it; connect one in each loop"
                )
            self._connections = None  # its loop is gone, and its connections with it
        if self._connections is None:
            self._connections = Connections(self.url, self._ssl)
            self._loop = loop
        return self._connections

    def _lost(self, call: _Call, error: NotConnected | Garbled | OSError) -> _Trouble:
        made = not isinstance(error, NotConnected)
        cause = error.cause if isinstance(error, NotConnected) else error
        insecure = isinstance(cause, tls.SSLError)
        text = f"{self.url} did not answer: {_plain(cause)}"
        if self._closed:
            text = _CLOSED
        elif insecure:
            text = f"No secure connection to {self.url}: {_plain(cause)}. Check the certificate"
        elif not made:
            text = f"Cannot reach {self.url}: {_plain(cause)}. Does the server run (`penstock dev`) and listen there?"
        elif isinstance(cause, TooMuch):
            text = f"The answer of {self.url} was not read: {cause}"
        elif isinstance(cause, TimeoutError):
            text = f"{self.url} did not answer within {call.timeout_s:g} seconds"
        if made and not call.idempotent:
            text += ". The request may have been carried out: look before you repeat it"
        lost = RuntimeError(text) if self._closed else Unreachable(text)
        lost.__cause__ = cause
        hopeless = self._closed or insecure or isinstance(cause, TooMuch)
        return _Trouble(lost, happened=made, again=not hopeless)

    def _read(self, answer: Answer) -> Json:
        status = answer.status
        try:
            body = msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = None
        if status < 300 and isinstance(body, dict):
            return body
        asked_s = _seconds(answer.headers.get(b"retry-after"))
        if not isinstance(body, dict):
            raise self._stranger(status, asked_s)
        refused: ServerRefused = refusal(status, body)
        raise _Trouble(refused, happened=True, again=status in TRIED_AGAIN, asked_s=asked_s)

    def _stranger(self, status: int, asked_s: float | None) -> _Trouble:
        if status >= 500:
            away = Unreachable(
                f"What stands before {self.url} says that the server is away (status {status})"
            )
            return _Trouble(away, happened=True, again=True, asked_s=asked_s)
        text = (
            f"{self.url} answered (status {status}), but not as a Penstock server does."
            " Check the address and the port: another program may be listening there."
        )
        return _Trouble(Unreachable(text), happened=True, again=False)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _queried(query: Mapping[str, Any]) -> str:
    given = {name: _text(value) for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _one_line(text: str) -> str:
    """The value of a header, which must not begin another one."""
    if _LINE_END.search(text):
        raise ValueError(f"An idempotency key is one line of text, not {text!r}")
    return text


def _seconds(header: bytes | None) -> float | None:
    """What Retry-After asks for; a date there is not understood, and our own pause is taken."""
    text = "" if header is None else header.decode("latin-1").strip()
    return float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) else None


def _plain(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "nothing came in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.rstrip(".").lower()
    return str(error).rstrip(".") or type(error).__name__
