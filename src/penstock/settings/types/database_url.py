"""Which store a database URL names, and where it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.settings.types.invalid_value import InvalidValue
from penstock.settings.types.secret import HIDDEN, Secret

FORMS = "sqlite:///relative.db, sqlite:////absolute.db, memory:// or postgresql://user@host/database"

_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:/\s]*)(?::([0-9]{1,5}))?")


class StoreKind(StrEnum):
    """Where the truth is kept."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A store; `shown` hides any password.

    `path` is None for PostgreSQL, and for a SQLite database that is gone when the server stops; `url` is for PostgreSQL
    only.
    """

    kind: StoreKind
    path: Path | None
    url: Secret | None
    shown: str


def parse_database_url(text: str) -> StoreLocation:
    """The store that the URL names. A refusal never repeats the URL, for it may hold a password."""
    if not text.isprintable() or " " in text:
        raise InvalidValue("must not contain spaces or control characters (write them as %20 and so on)")
    scheme, separator, rest = text.partition("://")
    match scheme.lower() if separator else "":
        case "memory" if rest == "":
            return _ephemeral()
        case "sqlite":
            return _sqlite(rest)
        case "postgresql" | "postgres":
            return _postgres(rest)
        case _:
            raise InvalidValue(f"must look like {FORMS}")


def _ephemeral() -> StoreLocation:
    return StoreLocation(StoreKind.SQLITE, path=None, url=None, shown="memory://")


def _sqlite(rest: str) -> StoreLocation:
    if rest in ("", "/:memory:"):
        return _ephemeral()
    if not rest.startswith("/"):
        raise InvalidValue(
            "needs three slashes before a relative path (sqlite:///penstock.db), four before /"
        )
    name = rest[1:]
    if "?" in name or "#" in name:
        raise InvalidValue("takes no options for SQLite: remove what follows ? or #")
    if name.startswith("~"):
        raise InvalidValue("does not expand ~: write the whole path, as in sqlite:////var/lib/penstock.db")
    if name == "" or name.endswith("/") or Path(name).name in ("", "..", "."):
        raise InvalidValue("must name a file, as in sqlite:///penstock.db")
    return StoreLocation(StoreKind.SQLITE, path=Path(name), url=None, shown=f"sqlite:///{name}")


def _postgres(rest: str) -> StoreLocation:
    url = f"postgresql://{rest}"
    if "#" in rest:
        raise InvalidValue("must not contain # (write it as %23 if it belongs to the password)")
    parts = _split(url)
    user, at, hosts = parts.netloc.rpartition("@")
    if "@" in user:
        raise InvalidValue("must write @ inside a user name or password as %40")
    for host in hosts.split(","):
        _check_host(host)
    if "@" in parts.path + parts.query:
        raise InvalidValue("must write @, /, ? and : inside a user name or password as %40, %2F, %3F and %3A")
    if "/" in parts.path[1:]:
        raise InvalidValue("must name one database after the host (write / inside a password as %2F)")
    name, _, password = user.partition(":")
    login = f"{name}:{HIDDEN}@" if password else f"{name}{at}"
    shown = f"postgresql://{login}{hosts}{parts.path}{_shown_options(parts.query)}"
    return StoreLocation(StoreKind.POSTGRES, path=None, url=Secret(url), shown=shown)


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise InvalidValue(f"must look like {FORMS}") from None


def _check_host(host: str) -> None:
    found = _HOST.fullmatch(host)
    if found is None or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        raise InvalidValue(
            "must have host or host:port (port 1 to 65535) before the database"
            " (write @, :, / and ? inside a password as %40, %3A, %2F and %3F)"
        )


def _shown_options(query: str) -> str:
    """The options as given, but for those that may hold a password (`password`, `sslpassword`)."""
    if not query:
        return ""
    pairs = (option.partition("=") for option in query.split("&"))
    shown = (f"{name}={HIDDEN if 'pass' in unquote(name).lower() else value}" for name, _, value in pairs)
    return "?" + "&".join(shown)
