"""Requests to a Penstock server over HTTP: retried where that is safe, and answered or refused with a reason.

Paths start after `/api`: `/workflows/order-7`, `/worker/register`. `route` escapes their parts.

Several addresses belong to servers with one database, any of which can answer any request. Requests go to one of them
until it fails; the next address is then tried immediately, and stays in use. A pause is made only once every address
has failed. The rule for resending is the same for one address and for many: a request is resent if it is idempotent,
or if no connection was made. A frozen server counts as failed, too; see `liveness.py`.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl as tls
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NotRequired, Protocol, TypedDict, Unpack
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from penstock import __version__
from penstock.sdk.connection.liveness import PROBE_SECONDS, RequestAbandoned, ServerLiveness
from penstock.sdk.connection.outage_log import OutageLog, log, sentence
from penstock.sdk.connection.signing import SigningKey
from penstock.sdk.failures import ServerRefused, Unreachable, refusal
from penstock.sdk.http.connection_pool import ConnectFailed, HttpConnectionPool
from penstock.sdk.http.response import HttpResponse, MalformedResponse, ResponseTooLarge
from penstock.wire.signatures import SignedRequest

Json = dict[str, Any]

CONTROL_PLANE: Final = ("X-Durable-Workflow-Control-Plane-Version", "2")
WORKER_PLANE: Final = ("X-Durable-Workflow-Protocol-Version", "1.20")
ANSWER_SECONDS: Final = 30.0
MARGIN_SECONDS: Final = 10.0
"""Time beyond the requested wait after which a response counts as lost."""
RETRY_SECONDS: Final = 30.0
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
TRIED_AGAIN: Final = (429, 500, 502, 503)
"""Statuses of temporary refusals. Idempotent requests are retried."""
_ROUTES: Final = {("workflows", "count"), ("schedules", "preview")}
"""Ids that collide with a route."""
TRIED_ELSEWHERE: Final = (500, 502, 503)
"""Those of them that concern this server only: another one may answer immediately."""
ENGINE_SCHEMES: Final = {"temporal": "temporal", "temporals": "temporal"}
"""Schemes of addresses of other engines, with the name of the engine."""
_JSON: Final = "application/json"
_BYTES: Final = "application/octet-stream"
_REFERENCES: Final = b'"external_payload":'
TRANSFER_SECONDS: Final = 60.0
_CLOSED: Final = "This client is closed; connect a new one"
_HEADER_TEXT: Final = re.compile(r"[\x21-\x7e]+")
_LINE_END: Final = re.compile(r"[\r\n\0]")


class PayloadAnswer(dict[str, Any]):
    """A response that mentions external payloads."""


class ControlOptions(TypedDict):
    """Options of a control plane request."""

    idempotent: bool
    """Whether it may be resent after it may have had an effect."""
    timeout_s: NotRequired[float | None]
    """How long the server may hold the request."""
    query: NotRequired[Mapping[str, Any] | None]
    idempotency_key: NotRequired[str | None]


class WorkOptions(TypedDict):
    """Options of a worker plane request."""

    idempotent: bool
    """Whether it may be resent after it may have had an effect."""
    timeout_s: NotRequired[float | None]
    """How long the server may hold the request."""
    method: NotRequired[str]
    """POST unless given."""
    on_send: NotRequired[Callable[[], None] | None]
    """Called before each attempt."""
    answer_s: NotRequired[float | None]
    """A server that has not answered within this time has failed, and the request is resent."""
    is_poll: NotRequired[bool]
    """`PollAbandoned` is raised if the server is frozen, instead of resending the request to another server.

    A frozen server continues the poll when it resumes, and returns the tasks that it leases to it: none may run.
    """


class PollAbandoned(Unreachable):
    """The server of a poll is frozen, and another server responds.

    Tasks that the frozen server leased to the poll are returned to the queue when it resumes, or their leases expire.
    """


class Transport(Protocol):
    """How clients and workers reach a server."""

    async def control(
        self, method: str, path: str, body: Json | None = None, **options: Unpack[ControlOptions]
    ) -> Json:
        """Send a control plane request and return the response. Raises `ServerRefused` or `Unreachable`."""

    async def work(self, path: str, body: Json, **options: Unpack[WorkOptions]) -> Json:
        """Send a worker plane request and return the response. Raises `ServerRefused` or `Unreachable`."""

    async def close(self) -> None: ...


def route(*parts: str) -> str:
    """Return a path of escaped parts, so that none can contain a separator."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def route_of(kind: str, id: str, *parts: str) -> str:  # noqa: A002 - the word of the API
    """Return the path of an object by id, even if the id is also the name of a route, like the workflow `count`."""
    if (kind, id) in _ROUTES:
        return f"/{kind}/%{ord(id[0]):02X}{id[1:]}" + route(
            *parts
        )  # the same text, but not that path segment
    return route(kind, id, *parts)


def is_engine_address(text: str) -> bool:
    """Whether an address is that of another engine, see `engines.py`."""
    return text.strip().partition("://")[0].lower() in ENGINE_SCHEMES


def server_urls(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return validated, distinct server addresses from a list or a comma-separated string."""
    if isinstance(given, str) and is_engine_address(given):
        return (given.strip(),)
    texts = given.split(",") if isinstance(given, str) else list(given)
    urls = tuple(dict.fromkeys(base_url(each) for each in texts if each.strip()))
    return urls or (base_url(""),)


def base_url(url: str) -> str:
    """Validate the address of a server and strip trailing slashes."""
    problem = f"{_shown(url)} is not the address of a server, such as http://127.0.0.1:8080"
    if _HOST_AND_PORT.fullmatch(url.strip()):
        problem += (
            f". A Penstock server there is http://{url.strip()}, and a Temporal cluster"
            f" temporal://{url.strip()}/NAMESPACE"
        )
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


_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:[0-9]{1,5}")
"""An address without a scheme, as clients of Temporal take it."""


def _shown(url: str) -> str:
    return "The text given" if "@" in url else repr(url)


@dataclass(frozen=True, slots=True)
class RequestRetries:
    """How long a request is retried, and the pauses between attempts."""

    seconds: float = RETRY_SECONDS
    first_pause_s: float = FIRST_PAUSE_SECONDS
    longest_pause_s: float = LONGEST_PAUSE_SECONDS

    def pause_s(self, attempt: int, retry_after_s: float | None, jitter: float) -> float:
        """Return the pause after an attempt (1, 2, ...).

        A delay requested by the server is never shortened; `jitter` is 0 to 1.
        """
        grown = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempt - 1, 30))
        own = grown * (0.5 + jitter / 2)
        return own if retry_after_s is None else retry_after_s + min(own, 1.0) * jitter


@dataclass(slots=True)
class _Request:
    """One request, with the same content in every attempt."""

    method: str
    path: str
    plane: tuple[str, str]
    head: str = field(repr=False)
    """Headers in addition to those of all requests of its plane."""
    content: bytes = field(repr=False)
    has_body: bool
    idempotent: bool
    timeout_s: float
    on_send: Callable[[], None] | None = None
    is_poll: bool = False
    media: str = _JSON
    """The media type of the content."""
    takes_bytes: bool = False
    """Whether the body of the answer is returned as it is."""


class _Server:
    """One address: its headers, and its connections while they are open."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self.root = f"{parts.path}/api"
        self.host = parts.netloc if parts.netloc.isascii() else parts.netloc.encode("idna").decode()
        self.is_local = is_loopback(parts.hostname or "")
        self.heads: dict[tuple[str, str], str] = {}
        self.connections: HttpConnectionPool | None = None


class _FailedAttempt(Exception):
    """A failed attempt: the error to raise, and whether the request may have had an effect.

    `may_retry`: another attempt may succeed; `may_retry_elsewhere`: another address may succeed.
    """

    def __init__(
        self,
        error: Exception,
        *,
        may_have_effect: bool,
        may_retry: bool,
        may_retry_elsewhere: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(str(error))
        self.error, self.may_have_effect, self.retry_after_s = error, may_have_effect, retry_after_s
        self.may_retry, self.may_retry_elsewhere = may_retry, may_retry_elsewhere


class HttpTransport:
    """Keeps connections open and shares them between requests. Belongs to one event loop once it is used.

    After a lost connection or a temporary refusal (429, 503) an idempotent request is resent; any other request only
    if no connection was made. Redirects are not followed, so that a token reaches only the configured server.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        namespace: str = "default",
        token: str | None = None,
        control_token: str | None = None,
        worker_token: str | None = None,
        control_key: SigningKey | None = None,
        worker_key: SigningKey | None = None,
        ssl: tls.SSLContext | bool = True,
        insecure: bool = False,
        retries: RequestRetries | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.urls = server_urls(url)
        self.namespace = namespace
        self._control_token = control_token or token
        self._worker_token = worker_token or token
        self._ssl = ssl
        self._retries = retries or RequestRetries()
        self._jitter = jitter
        self._keys = {CONTROL_PLANE: control_key, WORKER_PLANE: worker_key or control_key}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._outage = OutageLog()
        self._servers = [_Server(each) for each in self.urls]
        self._current = self._logged_server = 0
        self._move_reason = ""
        self._liveness: ServerLiveness | None = None
        if len(self._servers) > 1:
            self._liveness = ServerLiveness(len(self._servers), self._probe, self._leave)
        for server in self._servers:
            self._check(server.url, insecure)
            server.heads = {plane: self._head(server, plane) for plane in (CONTROL_PLANE, WORKER_PLANE)}

    @property
    def url(self) -> str:
        """The address in use."""
        return self.urls[self._current]

    def __repr__(self) -> str:
        return f"HttpTransport({','.join(self.urls)!r}, namespace={self.namespace!r})"

    def _check(self, url: str, insecure: bool) -> None:
        tokens = {"control": self._control_token, "worker": self._worker_token}
        for name, text in (("namespace", self.namespace), *((f"{k} token", v) for k, v in tokens.items())):
            if text is not None and not _HEADER_TEXT.fullmatch(text):
                raise ValueError(f"The {name} must be printable ASCII without spaces")
        parts = urlsplit(url)
        plain = parts.scheme == "http" and not is_loopback(parts.hostname or "")
        if plain and any(tokens.values()) and not insecure:
            raise ValueError(
                f"Refusing to send a token in the clear to {parts.hostname}."
                " Use an https address, or pass insecure=True on a network you trust."
            )

    async def control(
        self, method: str, path: str, body: Json | None = None, **options: Unpack[ControlOptions]
    ) -> Json:
        key, query = options.get("idempotency_key"), options.get("query")
        head = "" if key is None else f"Idempotency-Key: {_one_line(key)}\r\n"
        if query is not None:
            path += _queried(query)
        call = _call(method, path, CONTROL_PLANE, head, body, options["idempotent"], options.get("timeout_s"))
        return await self._send_with_retries(call)

    async def work(self, path: str, body: Json, **options: Unpack[WorkOptions]) -> Json:
        """Send a worker plane request; the path starts with `/worker`. GET and DELETE are sent without a body."""
        method = options.get("method", "POST")
        sent = None if method in ("GET", "DELETE") else body
        call = _call(method, path, WORKER_PLANE, "", sent, options["idempotent"], options.get("timeout_s"))
        call.on_send, call.is_poll = options.get("on_send"), options.get("is_poll", False)
        answer_s = options.get("answer_s")
        if answer_s is not None:
            call.timeout_s = min(call.timeout_s, answer_s)
        return await self._send_with_retries(call)

    async def transfer(
        self,
        method: str,
        path: str,
        plane: tuple[str, str],
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> bytes:
        """Send bytes and return the bytes of the answer; a repetition has no other effect than the first time."""
        head = "".join(f"{name}: {_one_line(value)}\r\n" for name, value in headers.items())
        call = _call(method, path, plane, head, None, True, None)
        call.takes_bytes, call.timeout_s = True, TRANSFER_SECONDS
        if content is not None:
            call.content, call.has_body, call.media = content, True, _BYTES
        answer: bytes = (await self._send_with_retries(call))["bytes"]
        return answer

    async def close(self) -> None:
        """Close all connections. The transport cannot be used again."""
        self._closed = True
        if self._liveness is not None:
            self._liveness.stop()
        open_ = [each.connections for each in self._servers if each.connections is not None]
        for server in self._servers:
            server.connections = None
        for connections in open_:
            connections.close()
        if open_:
            await asyncio.sleep(0)  # the event loop closes the sockets in its next iteration

    def _head(self, server: _Server, plane: tuple[str, str]) -> str:
        """Return the headers of all requests of a plane. Nothing is compressed on the same machine."""
        token = self._control_token if plane is CONTROL_PLANE else self._worker_token
        headers = {
            "Host": server.host,
            "User-Agent": f"penstock-python/{__version__}",
            "Accept": "application/json",
            plane[0]: plane[1],
            "X-Namespace": self.namespace,
        }
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if not server.is_local:
            headers["Accept-Encoding"] = "gzip"
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    async def _send_with_retries(self, call: _Request) -> Json:
        """Send until answered. The retry time counts from the first failure, so that a long poll does not use it up."""
        ends_at: float | None = None
        failed: dict[int, str] = {}
        pauses = 0
        while True:
            server_index = self._current
            try:
                body = await self._send(call, server_index)
            except _FailedAttempt as failure:
                ends_at = ends_at or asyncio.get_running_loop().time() + self._retries.seconds
                failed[server_index] = str(failure.error)
                is_final = failure.may_have_effect and not call.idempotent
                if is_final or isinstance(failure.error, PollAbandoned):
                    raise failure.error from failure.error.__cause__
                if failure.may_retry_elsewhere and self._next_server(server_index, failed):
                    continue
                pauses += 1
                await self._pause(failure, failed, pauses, ends_at)
                failed = {}
            else:
                self._outage.record_recovery(
                    self._servers[server_index].url, asyncio.get_running_loop().time()
                )
                self._log_move(server_index)
                return body

    async def _pause(
        self, failure: _FailedAttempt, failed: Mapping[int, str], pauses: int, ends_at: float
    ) -> None:
        """Pause before the next attempt; raise the error if there must not be one."""
        now = asyncio.get_running_loop().time()
        pause_s = self._retries.pause_s(pauses, failure.retry_after_s, self._jitter())
        error = self._final_error(failure.error, failed)
        if not failure.may_retry or now + pause_s >= ends_at:
            raise error from failure.error.__cause__
        if isinstance(error, Unreachable):
            self._outage.record_failure(str(error), pause_s, now)
        await asyncio.sleep(pause_s)

    def _next_server(self, server_index: int, failed: Mapping[int, str]) -> bool:
        """Switch to the next address, unless another request has done so already.

        Returns False if this request has tried every address since its last pause.
        """
        if self._current == server_index:
            self._current = self._server_after(server_index, failed)
            self._move_reason = failed[server_index]
        return self._current not in failed

    def _server_after(self, server_index: int, failed: Mapping[int, str]) -> int:
        """Return the next address that this request has not tried, preferring those not found frozen."""
        count = len(self._servers)
        others = [(server_index + step) % count for step in range(1, count + 1)]
        untried = [each for each in others if each not in failed] or others
        liveness = self._liveness
        return next((each for each in untried if liveness and not liveness.is_frozen(each)), untried[0])

    async def _probe(self, server_index: int) -> bool:
        """Return whether a server responds, with any status."""
        server = self._servers[server_index]
        call = _call("GET", "/health", CONTROL_PLANE, "", None, True, None)
        try:
            connections = self._open_connections(server)
            await connections.send(self._request(call, server), PROBE_SECONDS, again=True)
        except (ConnectFailed, MalformedResponse, OSError, RuntimeError):
            return False
        return True

    def _leave(self, server_index: int, other: int, problem: str) -> None:
        """Switch from the address of a frozen server to another, unless another is in use already."""
        if self._current == server_index:
            self._current = self._logged_server = other
            log.warning("%s %s. Requests go to %s now", self.urls[server_index], problem, self.urls[other])

    def _log_move(self, server_index: int) -> None:
        """Log once that another address is in use."""
        if server_index == self._current != self._logged_server:
            self._logged_server = server_index
            log.warning("%s Requests go to %s now", sentence(self._move_reason), self.urls[server_index])

    def _final_error(self, error: Exception, failed: Mapping[int, str]) -> Exception:
        """Return the error to raise: with several addresses it names the problem of each."""
        if len(failed) < 2 or not isinstance(error, Unreachable):
            return error
        return Unreachable("No server can be reached. " + " ".join(map(sentence, failed.values())))

    async def _send(self, call: _Request, server_index: int) -> Json:
        server, liveness = self._servers[server_index], self._liveness
        connections = self._open_connections(server)
        watch = None if liveness is None else partial(liveness.watch, server_index, may_move=call.idempotent)
        request = self._request(call, server)
        renewed = None if self._keys[call.plane] is None else lambda: self._request(call, server)
        try:
            response = await connections.send(
                request,
                call.timeout_s,
                again=call.idempotent,
                renewed=renewed,
                on_send=call.on_send,
                on_wait=watch,
            )
        except (ConnectFailed, MalformedResponse, OSError) as error:
            raise self._lost(call, server, error) from None
        return self._read(response, server, takes_bytes=call.takes_bytes)

    def _request(self, call: _Request, server: _Server) -> bytes:
        """Return the bytes to send. Each attempt needs a new signature, because a signature is valid once."""
        head = server.heads[call.plane] + call.head
        key = self._keys[call.plane]
        target = f"{server.root}{call.path}"
        if key is not None:
            path, _, query = target.partition("?")
            signed = SignedRequest(
                method=call.method,
                raw_path=path,
                raw_query=query,
                host=server.host,
                namespace=self.namespace,
                content_type=call.media if call.has_body else "",
                content_encoding="",
                body=call.content,
            )
            head += "".join(f"{name}: {value}\r\n" for name, value in key.headers(signed).items())
        if call.has_body:
            head += f"Content-Type: {call.media}\r\nContent-Length: {len(call.content)}\r\n"
        return f"{call.method} {target} HTTP/1.1\r\n{head}\r\n".encode() + call.content

    def _open_connections(self, server: _Server) -> HttpConnectionPool:
        if self._closed:
            raise RuntimeError(_CLOSED)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(
                    "A client belongs to the event loop that first used it; connect one in each loop"
                )
            for each in self._servers:
                each.connections = None  # the event loop is gone, and its connections with it
            if self._liveness is not None:
                self._liveness.reset()
            self._loop = loop
        if server.connections is None:
            server.connections = HttpConnectionPool(server.url, self._ssl)
        return server.connections

    def _lost(
        self, call: _Request, server: _Server, error: ConnectFailed | MalformedResponse | OSError
    ) -> _FailedAttempt:
        made = not isinstance(error, ConnectFailed)
        cause = error.cause if isinstance(error, ConnectFailed) else error
        insecure = isinstance(cause, tls.SSLError)
        text = _CLOSED if self._closed else _loss_text(server.url, cause, made, call.timeout_s)
        if made and not call.idempotent:
            text += ". The request may have had an effect: check before you repeat it"
        lost = RuntimeError(text) if self._closed else Unreachable(text)
        if call.is_poll and isinstance(cause, RequestAbandoned):
            lost = PollAbandoned(text)
        lost.__cause__ = cause.with_traceback(None)  # where in asyncio it failed is not useful
        hopeless = self._closed or isinstance(cause, ResponseTooLarge)
        return _FailedAttempt(
            lost, may_have_effect=made, may_retry=not (hopeless or insecure), may_retry_elsewhere=not hopeless
        )

    def _read(self, response: HttpResponse, server: _Server, *, takes_bytes: bool = False) -> Json:
        status = response.status
        if takes_bytes and status < 300:
            return {"bytes": response.body}
        try:
            body = msgspec.json.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            body = None
        if status < 300 and isinstance(body, dict):
            return PayloadAnswer(body) if _REFERENCES in response.body else body
        retry_after_s = _seconds(response.headers.get(b"retry-after"))
        if not isinstance(body, dict):
            raise _not_a_penstock_server(server.url, status, retry_after_s)
        refused: ServerRefused = refusal(status, body)
        may_retry, may_retry_elsewhere = status in TRIED_AGAIN, status in TRIED_ELSEWHERE
        raise _FailedAttempt(
            refused,
            may_have_effect=True,
            may_retry=may_retry,
            may_retry_elsewhere=may_retry_elsewhere,
            retry_after_s=retry_after_s,
        )


def _loss_text(url: str, cause: Exception, made: bool, timeout_s: float) -> str:
    """Return the message for a request without a response; `made` says whether there was a connection."""
    if isinstance(cause, tls.SSLError):
        return f"No secure connection to {url}: {_plain(cause)}. Check the certificate"
    if not made:
        return f"Cannot reach {url}: {_plain(cause)}. Does the server run (`penstock dev`) and listen there?"
    if isinstance(cause, RequestAbandoned):
        return f"{url} {cause}"
    if isinstance(cause, ResponseTooLarge):
        return f"The answer of {url} was not read: {cause}"
    if isinstance(cause, TimeoutError):
        return f"{url} did not answer within {timeout_s:g} seconds"
    return f"{url} did not answer: {_plain(cause)}"


def _not_a_penstock_server(url: str, status: int, retry_after_s: float | None) -> _FailedAttempt:
    """Return the error for a response that did not come from a Penstock server."""
    if status >= 500:
        away = Unreachable(f"A proxy before {url} reports that the server is unreachable (status {status})")
        return _FailedAttempt(
            away, may_have_effect=True, may_retry=True, may_retry_elsewhere=True, retry_after_s=retry_after_s
        )
    text = (
        f"{url} answered (status {status}), but not as a Penstock server does."
        " Check the address and the port: another program may be listening there."
    )
    return _FailedAttempt(Unreachable(text), may_have_effect=True, may_retry=False)


def _call(
    method: str,
    path: str,
    plane: tuple[str, str],
    head: str,
    body: Json | None,
    idempotent: bool,
    timeout_s: float | None,
) -> _Request:
    content = b"" if body is None else msgspec.json.encode(body)
    wait_s = ANSWER_SECONDS if timeout_s is None else timeout_s + MARGIN_SECONDS
    return _Request(
        method, path, plane, head, content, body is not None, idempotent or method == "GET", wait_s
    )


def is_loopback(host: str) -> bool:
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
    """Return a header value without line breaks, which would start another header."""
    if _LINE_END.search(text):
        raise ValueError(f"An idempotency key is one line of text, not {text!r}")
    return text


def _seconds(header: bytes | None) -> float | None:
    """Return the seconds of a Retry-After header; a date is ignored, and the default pause is used."""
    text = "" if header is None else header.decode("latin-1").strip()
    return float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text) else None


def _plain(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "nothing came in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.rstrip(".").lower()
    return str(error).rstrip(".") or type(error).__name__
