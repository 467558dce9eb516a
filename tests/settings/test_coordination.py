"""Who lends the locks between servers: what may be said, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigurationError
from penstock.settings import CoordinationKind, describe, load

OPEN = {"DW_AUTH_DRIVER": "none"}
POSTGRES = {"DW_DATABASE_URL": "postgresql://penstock@127.0.0.1/penstock"}
REDIS = {"DW_COORDINATION": "redis", "DW_REDIS_URL": "redis://127.0.0.1:6379/0"}


def problem_of(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigurationError) as refused:
        load(OPEN | environ)
    (problem,) = refused.value.details["problems"]
    return str(problem)


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({}, CoordinationKind.MEMORY),
        ({"DW_DATABASE_URL": "memory://"}, CoordinationKind.MEMORY),
        (POSTGRES, CoordinationKind.DATABASE),
        (POSTGRES | {"DW_COORDINATION": "AUTO"}, CoordinationKind.DATABASE),
        (POSTGRES | {"DW_COORDINATION": "database"}, CoordinationKind.DATABASE),
        ({"DW_COORDINATION": "database"}, CoordinationKind.DATABASE),
        ({"DW_COORDINATION": "memory"}, CoordinationKind.MEMORY),
        (POSTGRES | REDIS, CoordinationKind.REDIS),
    ],
)
def test_the_store_decides_unless_somebody_says_otherwise(environ: dict[str, str], kind: CoordinationKind):
    assert load(OPEN | environ).coordination.kind is kind


def test_memory_is_refused_where_servers_may_share_the_store():
    problem = problem_of(POSTGRES | {"DW_COORDINATION": "memory"})
    assert problem.startswith("environment: DW_COORDINATION=memory reaches one server only")
    assert "set DW_COORDINATION=database" in problem


def test_redis_without_its_url_is_refused():
    problem = problem_of(POSTGRES | {"DW_COORDINATION": "redis"})
    assert problem == (
        "environment: DW_COORDINATION=redis needs DW_REDIS_URL, as in redis://127.0.0.1:6379/0"
    )


@pytest.mark.parametrize("kind", ["auto", "database"])
def test_a_redis_that_would_not_be_used_is_refused(kind: str):
    problem = problem_of(POSTGRES | REDIS | {"DW_COORDINATION": kind})
    assert problem.startswith(f"environment: DW_REDIS_URL is set and DW_COORDINATION is {kind}")


def test_a_redis_for_a_single_server_is_warned_about():
    settings = load(OPEN | REDIS)
    assert any("auto is enough here" in warning for warning in settings.warnings)
    assert load(OPEN | REDIS | POSTGRES).warnings == ()


def test_an_unknown_word_is_refused_with_those_that_are_known():
    problem = problem_of({"DW_COORDINATION": "memcached"})
    assert "must be auto, memory, database or redis" in problem


@pytest.mark.parametrize(
    ("url", "database", "shown"),
    [
        ("redis://cache", 0, "redis://cache"),
        ("redis://cache:6380/", 0, "redis://cache:6380/"),
        ("redis://[::1]:6379/7", 7, "redis://[::1]:6379/7"),
        ("redis://:hunter2@cache/3", 3, "redis://:***@cache/3"),
        ("rediss://ann:hunter2@cache:6379/0", 0, "rediss://ann:***@cache:6379/0"),
        (
            "rediss://ann:hunter2@cache/0?ssl_ca_certs=/etc/ca.pem",
            0,
            "rediss://ann:***@cache/0?ssl_ca_certs=/etc/ca.pem",
        ),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, database: int, shown: str):
    settings = load(OPEN | REDIS | {"DW_REDIS_URL": url})
    redis = settings.coordination.redis
    assert redis is not None
    assert (redis.url.reveal(), redis.database, redis.shown) == (url, database, shown)
    rows = {row.name: row.value for row in describe(settings)}
    assert rows["DW_REDIS_URL"] == shown
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    "url",
    [
        "cache:6379",
        "http://hunter2@cache",
        "redis://",
        "redis://:hunter2@",
        "redis://hunter2@x@cache",
        "redis://cache:0",
        "redis://cache:70000/0",
        "redis://cache/zero",
        "redis://cache/0/1",
        "redis://cache/-1",
        "redis://:hunter2#@cache",
        "redis://cache/0?db=1",
        "redis://cache/0?ssl_ca_certs=/etc/ca.pem",
        "rediss://cache/0?ssl_cert_reqs=none",
        "redis://cache /0",
        "redis://[::1/0",
    ],
)
def test_a_url_that_is_none_is_refused_and_never_repeated(url: str):
    problem = problem_of(REDIS | {"DW_REDIS_URL": url})
    assert problem.startswith("environment: DW_REDIS_URL ")
    assert "hunter2" not in problem


def test_both_may_stand_in_a_file(tmp_path: Path):
    file = tmp_path / "penstock.toml"
    file.write_text(
        'auth_driver = "none"\ncoordination = "redis"\nredis_url = "redis://:hunter2@127.0.0.1:6379/1"\n'
    )
    file.chmod(0o600)
    assert load({}, file).coordination.kind is CoordinationKind.REDIS
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        load({}, file)
