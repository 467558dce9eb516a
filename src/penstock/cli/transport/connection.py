"""HTTP requests to the server, and their responses or errors."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import click

from penstock.cli.output.exits import RequestRefused, ServerUnreachable

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from penstock.cli.transport.signing import RequestSigning

ANSWER_SECONDS = 30.0
ANSWER_BYTES_MAX = 256 * 1024 * 1024
CONTROL_PLANE_VERSION = "2"
WORKER_PROTOCOL_VERSION = "1.20"
_AWAY_STATUSES = frozenset({502, 503})
"""Statuses after which another server may be tried."""
_LITERALS = frozenset({"count", "preview"})
"""Path segments that are routes of their own in place of an id."""
_HEADER_TEXT = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """The response of the server: its text, and the parsed body."""

    status: int
    text: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a server."""

    scheme: str
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Target:
        """Read a base address such as `http://127.0.0.1:8080`; anything else is a usage error."""
        problem = "is not an address such as http://127.0.0.1:8080"
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            raise click.UsageError(f"--server {problem}.") from None
        if parts.username is not None or parts.password is not None:
            raise click.UsageError("--server must not contain a password; pass the token with --token.")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise click.UsageError(f"--server {problem}.")
        prefix = parts.path.rstrip("/")
        if prefix.endswith("/api"):
            raise click.UsageError("--server must leave out /api; it is added to every request.")
        return cls(parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), prefix)

    @classmethod
    def parse_all(cls, urls: str) -> list[Target]:
        """Read one address, or several with commas between them."""
        given = [each for each in urls.split(",") if each.strip()]
        return list(dict.fromkeys(cls.parse(each) for each in given or [urls]))

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.scheme == "https" else 80
        return host if self.port == usual else f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether what we send stays on this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


_PAYLOADS = "/api/external-payloads/"
"""Paths whose answer is the text of a payload, not JSON."""


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """Sends requests as one caller in one namespace.

    A token leaves this machine only over https, unless `insecure` says otherwise. Redirects are not followed,
    so that a token reaches the server that was named and no other.

    `others` are further addresses of the same cluster. They are tried in turn if no connection can be made, and for
    reads also if no answer comes: a command is sent to another server only if it was certainly not carried out.
    """

    target: Target
    token: str | None = None
    namespace: str | None = None
    insecure: bool = False
    answer_seconds: float = ANSWER_SECONDS
    on_refusal: Callable[[str], None] | None = None
    others: tuple[Target, ...] = ()
    signing: RequestSigning | None = None
    verifies: bool = True
    """Whether the certificate of an https server is verified."""

    def __post_init__(self) -> None:
        for flag, value in (("--token", self.token), ("--namespace", self.namespace)):
            if value is not None and not _HEADER_TEXT.fullmatch(value):
                raise click.UsageError(f"{flag} must be printable ASCII without spaces.")
        for target in (self.target, *self.others):
            plain = target.scheme == "http" and not target.is_loopback
            if self.token and plain and not self.insecure:
                raise click.UsageError(
                    f"Refusing to send a token in the clear to {target.host}."
                    " Use an https address, or pass --insecure on a network you trust."
                )

    def get(
        self, *path: str, query: Mapping[str, object] | None = None, accept: Collection[int] = ()
    ) -> ServerResponse:
        """Read. `accept` names refusal statuses that the caller wants as an answer."""
        return self._send("GET", path, query or {}, None, accept)

    def post(self, *path: str, body: Mapping[str, Any]) -> ServerResponse:
        """Create or command."""
        return self._send("POST", path, {}, body, ())

    def put(self, *path: str, body: Mapping[str, Any]) -> ServerResponse:
        """Change."""
        return self._send("PUT", path, {}, body, ())

    def patch(self, *path: str, body: Mapping[str, Any]) -> ServerResponse:
        """Send a PATCH request."""
        return self._send("PATCH", path, {}, body, ())

    def delete(self, *path: str, query: Mapping[str, object] | None = None) -> ServerResponse:
        """Remove."""
        return self._send("DELETE", path, query or {}, None, ())

    def _send(
        self,
        method: str,
        path: tuple[str, ...],
        query: Mapping[str, object],
        body: Mapping[str, Any] | None,
        accept: Collection[int],
    ) -> ServerResponse:
        url = f"/api/{'/'.join(_segment(part) for part in path)}"
        given = {name: value for name, value in query.items() if value is not None}
        if given:
            url = f"{url}?{urlencode(given)}"
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        answer = self._from_any(method, url, content, path[0])
        status = answer.status
        if status >= 300 and status not in accept:
            if self.on_refusal is not None:
                self.on_refusal(answer.text)
            raise RequestRefused(status, answer.body, answer.text)
        return answer

    def _from_any(self, method: str, url: str, content: bytes | None, plane: str) -> ServerResponse:
        """The response of the first server that answers; if none does, the problem of each."""
        targets = (self.target, *self.others)
        problems: list[str] = []
        for number, target in enumerate(targets):
            try:
                answer = self._exchange(target, method, f"{target.prefix}{url}", content, plane)
            except ServerUnreachable as problem:
                problems.append(problem.message)
                may_go_on = method == "GET" or isinstance(problem, RequestNotSent)
                if not may_go_on or len(targets) == 1:
                    raise
                if number == len(targets) - 1:
                    raise ServerUnreachable(" ".join(problems), problem.advice) from problem
            else:
                is_away = method == "GET" and answer.status in _AWAY_STATUSES
                if not is_away or number == len(targets) - 1:
                    return answer
        raise AssertionError("there is at least one server")

    def _headers(self, target: Target, plane: str, content: bytes | None) -> dict[str, str]:
        headers = {"Host": target.authority, "Accept": "application/json", "User-Agent": "penstock-cli"}
        if plane == "worker":
            headers["X-Durable-Workflow-Protocol-Version"] = WORKER_PROTOCOL_VERSION
        else:
            headers["X-Durable-Workflow-Control-Plane-Version"] = CONTROL_PLANE_VERSION
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.namespace:
            headers["X-Namespace"] = self.namespace
        if content is not None:
            headers["Content-Type"] = "application/json"
        return headers

    def _exchange(
        self, target: Target, method: str, url: str, content: bytes | None, plane: str
    ) -> ServerResponse:
        import http.client

        headers = self._headers(target, plane, content)
        if self.signing is not None:
            headers |= self.signing.headers(plane, method, url, headers, content)
        link = _link(target, self.verifies)
        try:
            _connect(link, target)
            link.sock.settimeout(self.answer_seconds)
            link.request(method, url, body=content, headers=headers)
            response = link.getresponse()
            raw = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ServerUnreachable(
                f"{target} did not answer: {_plain(error, self.answer_seconds)}.",
                "Try again, or read the server's log."
                if method == "GET"
                else "The request may have taken effect: check before you repeat it.",
            ) from error
        finally:
            link.close()
        if len(raw) > ANSWER_BYTES_MAX:
            raise ServerUnreachable(f"The answer of {target} is too large.", "Ask for less with --limit.")
        if _PAYLOADS in url and response.status < 300:
            text = raw.decode("ascii", "replace")
            return ServerResponse(response.status, text, {"codec": "avro", "blob": text})
        return _read(target, response.status, raw)


class PathIdentifier(str):
    """An id in a path, which may equal another route's segment, such as the workflow id `count`."""

    __slots__ = ()


def _segment(part: str) -> str:
    if isinstance(part, PathIdentifier) and part in _LITERALS:
        return f"%{ord(part[0]):02X}{part[1:]}"  # the same text, and not that segment
    return quote(part, safe="")


class RequestNotSent(ServerUnreachable):
    """No connection was made: the request was certainly not carried out."""


def _link(target: Target, verifies: bool) -> HTTPConnection:
    """A connection that is not open yet."""
    import http.client
    import ssl

    if target.scheme != "https":
        return http.client.HTTPConnection(target.host, target.port, timeout=ANSWER_SECONDS)
    context = ssl.create_default_context()
    if not verifies:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(target.host, target.port, timeout=ANSWER_SECONDS, context=context)


def _connect(link: HTTPConnection, target: Target) -> None:
    """Open the connection."""
    import ssl

    try:
        link.connect()
    except ssl.SSLError as error:
        raise RequestNotSent(
            f"No secure connection to {target}: {_plain(error)}.",
            "Check the certificate, or that the server speaks https at all.",
        ) from error
    except OSError as error:
        raise RequestNotSent(
            f"Cannot reach {target}: {_plain(error)}.",
            "Start a server with `penstock dev`, or name another with --server.",
        ) from error


def _read(target: Target, status: int, raw: bytes) -> ServerResponse:
    text = raw.decode(errors="replace")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise ServerUnreachable(
            f"{target} answered (status {status}), but not as a Penstock server does.",
            "Check --server: another program may be listening there.",
        )
    return ServerResponse(status, text, body)


def _plain(error: Exception, waited_seconds: float = ANSWER_SECONDS) -> str:
    if isinstance(error, TimeoutError):
        return f"nothing came within {waited_seconds:.0f} seconds"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.rstrip(".").lower()
    return str(error).rstrip(".") or type(error).__name__
