"""The `broker` of an app's configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.sdk.app_config.checks import Problems, ValidatedConfig, is_a, problem

_SERVER = re.compile(r"https?://[^\s/]+\S*")
_DATABASE = re.compile(r"postgresql(\+psycopg)?://\S+")


@dataclass(frozen=True, kw_only=True)
class PostgresConfig(ValidatedConfig):
    """The `broker` of an app. A server stores Penstock's tasks, so that workers need no database connection.

    The address of a server (`http://...`) is where the app connects. The address of a database belongs to the
    server's configuration (`DW_DATABASE_URL`): it is accepted, but workers and senders do not use it, nor the pool
    settings.
    """

    database_url: str = ""
    pool_size: int | None = None
    max_overflow: int | None = None
    pool_timeout: float | None = None
    pool_recycle: int | None = None
    pool_pre_ping: bool | None = None
    echo: bool | None = None

    def problems(self) -> Problems:
        url = self.database_url
        if not is_a(url, str) or not (_SERVER.fullmatch(url) or _DATABASE.fullmatch(url)):
            yield problem(
                "bad_url",
                "database_url",
                f"database_url is the address of a Penstock server (http://…) or of a PostgreSQL database"
                f" (postgresql://… or postgresql+psycopg://…), not {_masked(url)!r}",
            )

    def __repr__(self) -> str:
        return f"PostgresConfig(database_url={_masked(self.database_url)!r})"

    @property
    def server_url(self) -> str | None:
        """The server to connect to, if one is given."""
        return self.database_url if self.database_url.startswith("http") else None

    @property
    def unused(self) -> list[str]:
        """Settings given here that have no effect."""
        pool = ("pool_size", "max_overflow", "pool_timeout", "pool_recycle", "pool_pre_ping", "echo")
        names = [name for name in pool if getattr(self, name) is not None]
        return names if self.server_url is not None else ["database_url", *names]


def _masked(url: object) -> object:
    """Return an address without its password."""
    return re.sub(r"://[^@/\s]*@", "://***@", url) if isinstance(url, str) else url
