"""Environments: presets under a name, in a file that only its owner reads."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.cli.recorded_server import RecordedServer, Run

NO_SERVER: dict[str, str | None] = {"DURABLE_WORKFLOW_SERVER_URL": None}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return tmp_path / "dw" / "config.json"


def shown(contract: Run, *words: str) -> Any:
    result = contract(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_environment_presets_server_namespace_token_and_format(
    contract: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workflows", {"workflows": []})
    words = (
        f"--server={server.url}",
        "--namespace=orders",
        "--token-env=PROD_TOKEN",
        "--profile-output=json",
    )
    assert contract("env:set", "prod", *words).exit_code == 0
    result = contract("workflow:list", "--env=prod", env=NO_SERVER | {"PROD_TOKEN": "from-the-variable"})
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["namespace"] == "orders"
    assert server.only_request.headers["authorization"] == "Bearer from-the-variable"


def test_flags_win_over_variables_and_variables_over_the_environment(
    contract: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workflows", {"workflows": []})
    contract("env:set", "dev", "--server=http://127.0.0.1:9", "--namespace=of-environment", "--make-default")
    variables = {"DURABLE_WORKFLOW_NAMESPACE": "of-variable"}
    assert contract("workflow:list", env=variables).exit_code == 0
    assert contract("workflow:list", "--namespace=of-flag", env=variables).exit_code == 0
    assert contract("workflow:list").exit_code == 0
    asked = [each.headers["x-namespace"] for each in server.requests]
    assert asked == ["of-variable", "of-flag", "of-environment"]


def test_the_token_of_an_environment_is_not_sent_to_another_server(
    contract: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/workflows", {"workflows": []})
    contract("env:set", "prod", "--server=https://api.example.com", "--token=secret", "--make-default")
    assert contract("workflow:list", f"--server={server.url}").exit_code == 0
    assert "authorization" not in server.only_request.headers


def test_the_flag_names_the_environment_before_the_variable_and_the_selected_one(contract: Run) -> None:
    for name in ("one", "two", "three"):
        contract("env:set", name, f"--namespace={name}", "--server=http://127.0.0.1:9")
    contract("env:use", "three")

    def namespace(*words: str, env: dict[str, str | None]) -> str:
        result = contract("workflow:list", "--json", *words, env=NO_SERVER | env)
        return str(json.loads(result.stdout)["namespace"])

    assert namespace("--env=one", env={"DW_ENV": "two"}) == "one"
    assert namespace(env={"DW_ENV": "two"}) == "two"
    assert namespace(env={}) == "three"


@pytest.mark.parametrize(
    "command", [("workflow:list", "--env=prdo"), ("env:use", "prdo"), ("env:show", "prdo")]
)
def test_an_unknown_environment_is_refused(
    contract: Run, server: RecordedServer, command: tuple[str, ...]
) -> None:
    contract("env:set", "prod", f"--server={server.url}")
    result = contract(*command)
    assert result.exit_code == 2
    assert "environment_unknown: There is no environment 'prdo'. Did you mean 'prod'?" in result.stderr
    assert server.requests == []


def test_an_unknown_environment_in_the_variable_does_not_prevent_its_creation(contract: Run) -> None:
    assert contract("env:set", "new", "--namespace=a", env={"DW_ENV": "new"}).exit_code == 0


def test_the_file_is_that_of_the_contract_and_for_its_owner_only(contract: Run, stored: Path) -> None:
    contract("env:set", "dev", "--server=http://localhost:8080", "--make-default")
    contract("env:set", "prod", "--token=secret", "--tls-verify=false")
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    body = json.loads(stored.read_text())
    assert body["schema"] == "durable-workflow.cli.config"
    assert body["version"] == 1
    assert body["current_env"] == "dev"
    assert body["envs"]["dev"]["server"] == "http://localhost:8080"
    assert body["envs"]["prod"]["token_source"] == {"type": "literal", "value": "secret"}
    assert body["envs"]["prod"]["tls_verify"] is False


def test_a_file_of_the_contracts_program_is_read(contract: Run, stored: Path) -> None:
    stored.parent.mkdir()
    source = {"type": "env", "value": "PROD_DW_TOKEN"}
    profile = {
        "server": "https://api.example.com",
        "token_source": source,
        "tls_verify": True,
        "output": "json",
    }
    stored.write_text(
        json.dumps({"schema": "x", "version": 1, "current_env": None, "envs": {"prod": profile}})
    )
    assert shown(contract, "env:show", "prod") == {
        "name": "prod", "server": "https://api.example.com", "namespace": None, "tls_verify": True, "output": "json",
        "token_source": {"type": "env", "env": "PROD_DW_TOKEN"}, "current": False, "config_path": str(stored),
    }  # fmt: skip


def test_a_file_without_environments_as_php_writes_it_is_read(contract: Run, stored: Path) -> None:
    stored.parent.mkdir()
    stored.write_text('{"schema": "x", "version": 1, "current_env": null, "envs": []}')
    assert shown(contract, "env:list")["envs"] == []


def test_tokens_are_shown_only_if_asked_for(contract: Run) -> None:
    contract("env:set", "prod", "--token=secret")
    for words in (("env:show", "prod"), ("env:list",)):
        assert "secret" not in contract(*words).stdout + contract(*words, "--json").stdout
        assert "secret" in contract(*words, "--show-token").stdout


def test_a_change_keeps_the_other_fields_and_an_empty_text_clears_one(contract: Run) -> None:
    contract("env:set", "prod", "--server=https://a", "--namespace=orders", "--token=secret")
    assert shown(contract, "env:set", "prod", "--namespace=", "--token-env=")["namespace"] is None
    kept = shown(contract, "env:show", "prod")
    assert kept["server"] == "https://a"
    assert kept["token_source"] is None


def test_a_deleted_environment_is_no_longer_selected(contract: Run) -> None:
    contract("env:set", "prod", "--make-default")
    assert shown(contract, "env:delete", "prod")["was_current"] is True
    assert shown(contract, "env:list")["current_env"] is None
    assert contract("env:show").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [("env:set", "-x"), ("env:set", "a/b"), ("env:set", "a", "--token=x", "--token-env=Y"),
     ("env:set", "a", "--token-env=not a name"), ("env:set", "a", "--tls-verify=maybe")],
)  # fmt: skip
def test_a_wrong_environment_is_not_written(contract: Run, stored: Path, words: tuple[str, ...]) -> None:
    assert contract(*words).exit_code == 2
    assert not stored.exists()


def test_a_broken_file_is_an_error_that_names_it(contract: Run, stored: Path) -> None:
    stored.parent.mkdir()
    stored.write_text("{")
    result = contract("workflow:list")
    assert result.exit_code == 2
    assert f"environments_unreadable: {stored} cannot be read" in result.stderr


def test_a_wrong_value_for_the_verification_is_a_usage_error(contract: Run, server: RecordedServer) -> None:
    assert contract("workflow:list", "--tls-verify=perhaps").exit_code == 2
    assert server.requests == []
