"""Which store a database URL names, and where it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote

from penstock.schema.problems import InvalidValue
from penstock.settings.types.secret import HIDDEN, Secret
from penstock.settings.types.url_parts import check_host, check_text, masked_login, split

FORMS = "sqlite:///relative.db, sqlite:////absolute.db, memory:// or postgresql://user@host/database"


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

    def __str__(self) -> str:
        return self.shown


def parse_database_url(text: str) -> StoreLocation:
    """The store that the URL names. A refusal never repeats the URL, for it may hold a password."""
    check_text(text)
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
    parts = split(url, FORMS)
    login, hosts = masked_login(parts)
    for host in hosts.split(","):
        check_host(host, may_be_empty=True)
    if "@" in parts.path + parts.query:
        raise InvalidValue("must write @, /, ? and : inside a user name or password as %40, %2F, %3F and %3A")
    if "/" in parts.path[1:]:
        raise InvalidValue("must name one database after the host (write / inside a password as %2F)")
    shown = f"postgresql://{login}{hosts}{parts.path}{_shown_options(parts.query)}"
    return StoreLocation(StoreKind.POSTGRES, path=None, url=Secret(url), shown=shown)


def _shown_options(query: str) -> str:
    """The options as given, but for those that may hold a password (`password`, `sslpassword`)."""
    if not query:
        return ""
    pairs = (option.partition("=") for option in query.split("&"))
    shown = (f"{name}={HIDDEN if 'pass' in unquote(name).lower() else value}" for name, _, value in pairs)
    return "?" + "&".join(shown)
