"""Which Redis a URL names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from penstock.schema.problems import InvalidValue
from penstock.settings.types.secret import HIDDEN, Secret

FORMS = "redis://host:6379/0 or, with TLS, rediss://user:password@host:6379/0"
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:/\s@]+)(?::([0-9]{1,5}))?")
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
    if not text.isprintable() or " " in text:
        raise InvalidValue("must not contain spaces or control characters (write them as %20 and so on)")
    parts = _split(text)
    if parts.scheme not in ("redis", "rediss"):
        raise InvalidValue(f"must look like {FORMS}")
    if "#" in text:
        raise InvalidValue("must not contain # (write it as %23 if it belongs to the password)")
    login, at, host = parts.netloc.rpartition("@")
    _check_host(login, host)
    database = _DATABASE.fullmatch(parts.path)
    if database is None:
        raise InvalidValue("must end in the number of a database, as in redis://host:6379/0")
    _check_options(parts)
    user, _, password = login.partition(":")
    masked = f"{user}:{HIDDEN}@" if password else f"{user}{at}"
    options = f"?{parts.query}" if parts.query else ""
    shown = f"{parts.scheme}://{masked}{host}{parts.path}{options}"
    return RedisLocation(Secret(text), int(database[1] or 0), shown)


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        raise InvalidValue(f"must look like {FORMS}") from None


def _check_host(login: str, host: str) -> None:
    if "@" in login:
        raise InvalidValue("must write @ inside a user name or password as %40")
    found = _HOST.fullmatch(host)
    if found is None or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        raise InvalidValue(
            "must have host or host:port (port 1 to 65535) before the database"
            " (write @, :, / and ? inside a password as %40, %3A, %2F and %3F)"
        )


def _check_options(parts: SplitResult) -> None:
    """Only where the certificates are: an option that stops checking them is refused like any unknown one."""
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if parts.scheme != "rediss" or name not in TLS_OPTIONS:
            raise InvalidValue(f"takes no options but, for rediss://, {', '.join(TLS_OPTIONS)}")
