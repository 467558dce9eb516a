"""Reads a request from its connection: headers, host, size, media type, JSON and query parameters.

Nothing here depends on the route or on the caller. What these functions accept is unambiguous: a header, a parameter
or a key that proxies and servers could read differently is rejected, and so is a body that is larger than the server
allows, before it is held in memory.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl

from penstock.errors import InvalidInput, Reason
from penstock.settings import ListenPolicy
from penstock.wire import strict_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_SINGLE: Final = frozenset(
    {
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "x-durable-workflow-control-plane-version",
        "x-durable-workflow-protocol-version",
        "x-namespace",
        "x-penstock-signature",
        "x-signature",
    }
)
"""Security-relevant headers: repeated ones are ambiguous, because proxies and servers may read different ones."""
_PORT: Final = re.compile(r":\d+$")
_QUERY_PARAMETERS_MAX: Final = 100


class ClientDisconnected(Exception):
    """The client closed the connection."""


def fold_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name; repeats are joined by commas.

    Raises `InvalidInput` if a security-relevant header is repeated.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise InvalidInput(
                Reason.MALFORMED_REQUEST, f"The header {name} is repeated; send it once.", header=name
            )
        else:
            headers[name] = f"{headers[name]}, {value}"
    return headers


def check_host(headers: Mapping[str, str], allowed: frozenset[str] | None) -> None:
    """Reject unknown `Host` headers, so that a foreign web page cannot reach a loopback server by DNS rebinding.

    `allowed` holds lower-case names without port, brackets and final dot; None allows every host.
    """
    host = _PORT.sub("", headers.get("host", "")).strip("[]")
    if allowed is not None and host.lower().removesuffix(".") not in allowed:
        raise InvalidInput(
            Reason.MISDIRECTED_HOST,
            f"This server does not serve the host {host[:100]!r}. Add it to DW_ALLOWED_HOSTS if it should.",
        )


def client_address(scope: Scope, headers: Mapping[str, str], listen: ListenPolicy) -> str:
    """Where the request comes from: the peer, or the address that a trusted proxy reports."""
    client = scope.get("client")
    peer = str(client[0]) if client else "unknown"
    if listen.trusted_proxies and listen.trusts_proxy(peer):
        return headers.get("x-forwarded-for", "").split(",")[-1].strip() or peer
    return peer


async def read_body(receive: Receive, headers: Mapping[str, str], bytes_max: int) -> bytes:
    """The whole body; raises `InvalidInput` (`payload_too_large`) or `ClientDisconnected`."""
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > bytes_max):
        raise _too_large(bytes_max)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)


def _too_large(bytes_max: int) -> InvalidInput:
    return InvalidInput(Reason.PAYLOAD_TOO_LARGE, f"The body exceeds {bytes_max} bytes.", limit=bytes_max)


def read_document(headers: Mapping[str, str], raw: bytes) -> object:
    """The body as JSON; raises `InvalidInput` for another media type, for compression and for malformed JSON."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise InvalidInput(
            Reason.UNSUPPORTED_CONTENT_ENCODING,
            "Compressed request bodies are not supported; send the body without Content-Encoding.",
            accepted_content_encodings=["identity"],
        )
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and not media.endswith("+json"):
        raise InvalidInput(
            Reason.UNSUPPORTED_MEDIA_TYPE,
            "The body must be JSON, with Content-Type: application/json.",
            accepted_content_types=["application/json", "application/*+json"],
        )
    return strict_json.loads(raw)


def read_parameters(raw_query: str) -> dict[str, str]:
    """Query parameters, each at most once."""
    try:
        pairs = parse_qsl(
            raw_query.encode("latin-1").decode("ascii"),
            keep_blank_values=False,
            strict_parsing=False,
            errors="strict",
            max_num_fields=_QUERY_PARAMETERS_MAX,
        )
    except ValueError:
        raise InvalidInput(Reason.MALFORMED_REQUEST, "The query string is malformed.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidInput(
                Reason.MALFORMED_REQUEST, f"The query parameter {name[:50]!r} is repeated; send it once."
            )
        found[name] = value
    return found
