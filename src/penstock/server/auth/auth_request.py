"""What a request shows of its sender, free of any web framework."""

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
"""Headers on which a decision rests: said twice, two readers could read two things."""

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

    Raises `InvalidInput` if one on which a decision rests stands twice.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise InvalidInput(
                Reason.MALFORMED_REQUEST, f"The header {name} stands twice; send it once.", header=name
            )
        else:
            headers[name] = f"{headers[name]}, {value}"
    return headers


def refuse_secrets_in_url(raw_query: str) -> None:
    """Raise `InvalidInput` (`token_in_url`) if the query carries a credential, right or wrong.

    URLs end up in logs, histories and referrers, so such a secret has to be treated as leaked.
    """
    if not raw_query:
        return
    for pair in raw_query.replace(";", "&").split("&"):
        name = unquote_plus(pair.partition("=")[0]).strip().lower()
        if name in _SECRET_PARAMETERS:
            raise InvalidInput(
                Reason.TOKEN_IN_URL,
                f"The query parameter {name} would carry a secret in the URL, where logs keep it. "
                "Send credentials in a header, and replace this one.",
                parameter=name,
            )
