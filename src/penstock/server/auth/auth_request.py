"""The parts of a request that authentication needs, independent of any web framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from penstock.errors import InvalidInput, Reason

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

_SECRET_PARAMETERS: Final = frozenset({"access_token", "api_key", "authorization", "token"})


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """The request as received. Path and query are raw text, headers are folded (`fold_headers`)."""

    method: str
    raw_path: str
    raw_query: str
    headers: Mapping[str, str]
    body: bytes
    now_ms: int


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


def refuse_secrets_in_url(raw_query: str) -> None:
    """Raise `InvalidInput` (`token_in_url`) if the query contains a credential, valid or not.

    URLs end up in logs, browser histories and referrers, so such a secret must be treated as leaked.
    """
    if not raw_query:
        return
    for pair in raw_query.replace(";", "&").split("&"):
        name = unquote_plus(pair.partition("=")[0]).strip().lower()
        if name in _SECRET_PARAMETERS:
            raise InvalidInput(
                Reason.TOKEN_IN_URL,
                f"The query parameter {name} puts a secret into the URL, which is logged. "
                "Send credentials in a header, and replace this one.",
                parameter=name,
            )
