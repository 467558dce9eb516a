"""One URL names the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.schema.problems import InvalidValue
from penstock.settings import StoreKind, describe, load
from penstock.settings.types.database_url import parse_database_url


def shown(url: str) -> str | None:
    rows = describe(load({"DW_DATABASE_URL": url}))
    return next(row.value for row in rows if row.name == "DW_DATABASE_URL")


def told(url: str) -> str:
    """All that an operator is told of the URL, whether it is taken or refused."""
    try:
        return parse_database_url(url).shown
    except InvalidValue as unfit:
        return unfit.message


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///penstock.db", "penstock.db"),
        ("sqlite:///data/penstock.db", "data/penstock.db"),
        ("sqlite:////var/lib/penstock.db", "/var/lib/penstock.db"),
        ("SQLite:///x", "x"),
        ("sqlite:///100%.db", "100%.db"),
    ],
)
def test_sqlite_urls_name_a_file(url: str, path: str):
    store = load({"DW_DATABASE_URL": url}).store
    assert (store.kind, store.path, store.url) == (StoreKind.SQLITE, Path(path), None)


@pytest.mark.parametrize("url", ["memory://", "sqlite://", "sqlite:///:memory:"])
def test_an_ephemeral_store_is_sqlite_without_a_path(url: str):
    store = load({"DW_DATABASE_URL": url}).store
    assert (store.kind, store.path, store.url) == (StoreKind.SQLITE, None, None)
    assert shown(url) == "memory://"


@pytest.mark.parametrize(
    ("url", "visible"),
    [
        ("postgresql://db/app", "postgresql://db/app"),
        ("postgres://db/app", "postgresql://db/app"),
        ("postgresql:///app", "postgresql:///app"),
        ("postgresql://u@db:5433/app", "postgresql://u@db:5433/app"),
        ("postgresql://u:p%40ss@db/app", "postgresql://u:***@db/app"),
        ("postgresql://u:p:q@[::1]:5432/app", "postgresql://u:***@[::1]:5432/app"),
        ("postgresql://u:p@a:1,b:2/app", "postgresql://u:***@a:1,b:2/app"),
        ("postgresql://u:@/app?host=/run/pg", "postgresql://u@/app?host=/run/pg"),
        ("postgresql://db/app?user=u&password=p", "postgresql://db/app?user=u&password=***"),
        ("postgresql://db/app?p%61ssword=p", "postgresql://db/app?p%61ssword=***"),
        ("postgresql://db/app?sslmode=require", "postgresql://db/app?sslmode=require"),
    ],
)
def test_postgres_urls_are_kept_whole_and_shown_without_the_password(url: str, visible: str):
    store = load({"DW_DATABASE_URL": url}).store
    assert store.kind is StoreKind.POSTGRES
    assert store.url is not None
    assert store.url.reveal() == url.replace("postgres://", "postgresql://")
    assert shown(url) == visible


@pytest.mark.parametrize(
    "url",
    [
        "",
        "penstock.db",
        "sqlite:penstock.db",
        "sqlite://penstock.db",
        "sqlite:///",
        "sqlite:///data/",
        "sqlite:///..",
        "sqlite:///~/penstock.db",
        "sqlite:///a.db?mode=ro",
        "sqlite:///a\nb",
        "memory://x",
        "mysql://db/app",
        "postgresql+asyncpg://db/app",
        "postgresql://db:0/app",
        "postgresql://db:65536/app",
        "postgresql://db:http/app",
        "postgresql://[::1/app",
        "postgresql://u:p@q@db/app",
        "postgresql://u:12/w@db",
        "postgresql://u:12?w@db/app",
        "postgresql://u:p#q@db/app",
        "postgresql://db/app/more",
        "postgresql://db/ap p",
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str):
    with pytest.raises(ConfigurationError, match="environment: DW_DATABASE_URL "):
        load({"DW_DATABASE_URL": url})


@given(st.text(alphabet="QJ@:/?#%&=[].,0 ", max_size=24))
def test_whatever_the_password_is_it_is_not_shown(password: str):
    assert "SEKRIT" not in told(f"postgresql://user:SEKRIT{password}SEKRIT@host/db")
