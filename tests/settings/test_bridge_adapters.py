"""Declared bridge adapters: in a file or in the environment, with secrets by reference that are never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigurationError
from penstock.settings import Settings, load

SECRET = "a-secret-that-nobody-must-see"
ENVIRONMENT = {"DW_AUTH_DRIVER": "none", "SHOP_SECRET": SECRET}
ROUTE = {"action": "start_workflow", "target": {"workflow_type": "t"}}
ADAPTER: dict[str, Any] = {"scheme": "github", "secrets": ["env:SHOP_SECRET"], "routes": [ROUTE]}
FILE = """
[bridge_adapters.shop]
scheme = "standard"
secrets = ["env:SHOP_SECRET", "file:{secret_file}"]
namespace = "Shop"
tolerance_seconds = 60
max_bytes = 1000
idempotency_key = "{{id}}"

[[bridge_adapters.shop.routes]]
action = "signal_workflow"
when = {{ "data.kind" = ["paid", "refunded"] }}
target = {{ workflow_id = "order-{{data.id}}", signal_name = "paid" }}
input = ["{{data}}"]
"""


def declared(adapter: dict[str, Any] | None = None, **changed: Any) -> Settings:
    text = json.dumps({"shop": (adapter or ADAPTER) | changed})
    return load(ENVIRONMENT | {"DW_BRIDGE_ADAPTERS": text})


def problems_of(**changed: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        declared(**changed)
    problems: list[str] = caught.value.details["problems"]
    assert SECRET not in str(caught.value)
    return problems


def test_a_file_declares_an_adapter_in_its_own_table(tmp_path: Path) -> None:
    secret_file = tmp_path / "secret"
    secret_file.write_text("the-secret-in-a-file\n")
    secret_file.chmod(0o600)
    file = tmp_path / "penstock.toml"
    file.write_text(FILE.format(secret_file=secret_file))
    settings = load(ENVIRONMENT, file)
    (shop,) = settings.bridge_adapters
    assert (shop.name, shop.namespace, shop.scheme.value) == ("shop", "shop", "standard")
    assert (shop.tolerance_ms, shop.bytes_max) == (60_000, 1000)
    assert shop.signing_keys() == (SECRET.encode(), b"the-secret-in-a-file")
    event = {"data": {"kind": "paid", "id": 7}}
    assert shop.routes[0].matches(event)
    assert shop.routes[0].command(event)["target"]["workflow_id"] == "order-7"
    assert SECRET not in repr(settings)

    both = ENVIRONMENT | {"DW_BRIDGE_ADAPTERS": "{}"}
    with pytest.raises(ConfigurationError, match="both give bridge adapters"):
        load(both, file)


def test_the_environment_declares_adapters_as_json() -> None:
    (shop,) = declared().bridge_adapters
    assert (shop.namespace, shop.tolerance_ms, shop.bytes_max) == (None, 300_000, 262_144)
    assert load(ENVIRONMENT).bridge_adapters == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"secrets": []}, "a list of 1 to 5 references"),
        ({"secrets": SECRET}, "a list of 1 to 5 references"),
        ({"secrets": [SECRET]}, "a list of 1 to 5 references"),
        ({"secrets": ["env:DW_ADMIN_TOKEN"]}, "env:NAME (not DW_*)"),
        ({"secrets": ["env:SHOP_SECRET", "env:SHOP_SECRET"]}, "a list of 1 to 5 references"),
        ({"secrets": ["env:NOT_SET"]}, "NOT_SET, which is not set"),
        ({"secrets": ["file:/does/not/exist"]}, "cannot be read"),
        ({"secret": SECRET}, "write secrets, a list of references"),
        ({"scheme": "md5"}, "must be standard, stripe or github"),
        ({"routes": []}, "at least one route"),
        ({"routes": [ROUTE | {"action": "paint"}]}, "must be start_workflow"),
        ({"routes": [ROUTE | {"target": {}}]}, "'workflow_type' is required for start_workflow"),
        ({"routes": [ROUTE | {"target": {"workflow_type": "t", "x": "y"}}]}, "unknown key"),
        ({"routes": [ROUTE | {"target": {"workflow_type": "{a"}}]}, "a brace without its partner"),
        ({"routes": [ROUTE | {"when": {"a..b": 1}}]}, "has the path"),
        ({"routes": [ROUTE | {"when": {"a": []}}]}, "or a list of these"),
        ({"routes": [ROUTE | {"input": 7}]}, "must be a list of arguments"),
        ({"tolerance_seconds": 3601}, "a whole number of seconds from 1 to 3600"),
        ({"max_bytes": 1}, "a whole number of bytes"),
        ({"colour": "red"}, "unknown key"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_by_name(changed: dict[str, Any], said: str) -> None:
    problems = problems_of(**changed)
    assert len(problems) == 1
    assert said in problems[0]
    assert "DW_BRIDGE_ADAPTERS.shop" in problems[0]


def test_a_short_secret_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigurationError, match="less than 16 bytes") as caught:
        load(ENVIRONMENT | {"SHOP_SECRET": "hunter2", "DW_BRIDGE_ADAPTERS": json.dumps({"shop": ADAPTER})})
    assert "hunter2" not in str(caught.value)


def test_a_name_that_no_path_can_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="letters, digits"):
        load(ENVIRONMENT | {"DW_BRIDGE_ADAPTERS": json.dumps({"a b": ADAPTER})})
