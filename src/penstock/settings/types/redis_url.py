"""Which Redis a URL names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl

from penstock.schema.problems import InvalidValue
from penstock.settings.types.secret import Secret
from penstock.settings.types.url_parts import check_host, check_text, masked_login, split

FORMS = "redis://host:6379/0 or, with TLS, rediss://user:password@host:6379/0"
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

_DATABASE = re.compile(r"/?|/(0|[1-9][0-9]{0,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RedisLocation:
    """A Redis server; `shown` hides any password. `database` separates users of one server."""

    url: Secret
    database: int
    shown: str

    def __str__(self) -> str:
        return self.shown


def parse_redis_url(text: str) -> RedisLocation:
    """The Redis that the URL names. A refusal never repeats the URL, for it may hold a password."""
    check_text(text)
    if not text.lower().startswith(("redis://", "rediss://")):
        raise InvalidValue(f"must look like {FORMS}")
    parts = split(text, FORMS)
    login, host = masked_login(parts)
    check_host(host)
    database = _DATABASE.fullmatch(parts.path)
    if database is None:
        raise InvalidValue("must end in the number of a database, as in redis://host:6379/0")
    _check_options(parts)
    options = f"?{parts.query}" if parts.query else ""
    shown = f"{parts.scheme}://{login}{host}{parts.path}{options}"
    return RedisLocation(Secret(text), int(database[1] or 0), shown)


def _check_options(parts: SplitResult) -> None:
    """Only where the certificates are: an option that stops checking them is refused like any unknown one."""
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if parts.scheme != "rediss" or name not in TLS_OPTIONS:
            raise InvalidValue(f"takes no options but, for rediss://, {', '.join(TLS_OPTIONS)}")
