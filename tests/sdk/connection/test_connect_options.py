"""Server address and credentials: arguments, environment, profile, default; and the check on connecting."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from penstock.sdk.clients.client import Client
from penstock.sdk.connection.connect_options import ConnectOptions, ProfileError
from penstock.sdk.failures import NamespaceNotFoundError, Unauthorized, Unreachable
from tests.acceptance.cluster import Cluster
from tests.sdk.connection.test_transport import FINE, answer, scripted
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.live import free_port

PROFILES = """
[default]
url = "http://127.0.0.1:1111"
namespace = "of-the-default"

[prod]
url = "https://penstock.example"
namespace = "orders"
control_token = "c0ntrol"
worker_token = "w0rker"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "profiles.toml"
    path.write_text(PROFILES)
    return {"PENSTOCK_PROFILES": str(path)}


def test_without_anything_it_is_the_server_of_this_machine(tmp_path: Path) -> None:
    found = ConnectOptions.resolve(environment={"PENSTOCK_PROFILES": str(tmp_path / "none.toml")})
    assert found == ConnectOptions("http://127.0.0.1:8080", "default")


def test_arguments_win_over_the_environment_and_that_over_the_profile(environment: dict[str, str]) -> None:
    environment |= {
        "PENSTOCK_PROFILE": "prod",
        "DURABLE_WORKFLOW_NAMESPACE": "of-the-environment",
        "DURABLE_WORKFLOW_SERVER_URL": " ",
    }
    found = ConnectOptions.resolve(environment=environment)
    assert (found.url, found.namespace) == ("https://penstock.example", "of-the-environment")
    assert (found.control_token, found.worker_token) == ("c0ntrol", "w0rker")
    assert ConnectOptions.resolve(namespace="given", environment=environment).namespace == "given"


def test_the_profile_called_default_holds_when_none_is_named(environment: dict[str, str]) -> None:
    assert ConnectOptions.resolve(environment=environment).namespace == "of-the-default"
    assert ConnectOptions.resolve(profile="prod", environment=environment).namespace == "orders"


def test_tokens_of_different_sources_are_not_mixed(environment: dict[str, str]) -> None:
    environment |= {"PENSTOCK_PROFILE": "prod", "DURABLE_WORKFLOW_AUTH_TOKEN": "b0th"}
    found = ConnectOptions.resolve(environment=environment)
    assert (found.token, found.control_token, found.worker_token) == ("b0th", None, None)
    given = ConnectOptions.resolve(worker_token="w", environment=environment)
    assert (given.token, given.control_token, given.worker_token) == (None, None, "w")


def test_tokens_of_each_plane_come_from_the_environment() -> None:
    found = ConnectOptions.resolve(
        environment={
            "DURABLE_WORKFLOW_CONTROL_TOKEN": "c0ntrol",
            "DURABLE_WORKFLOW_WORKER_TOKEN": "w0rker",
            "PENSTOCK_PROFILES": "/nonexistent",
        }
    )
    assert (found.control_token, found.worker_token) == ("c0ntrol", "w0rker")


def test_options_show_no_token() -> None:
    assert "s3cret" not in repr(ConnectOptions(token="s3cret", control_token="s3cret", worker_token="s3cret"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[prod]\nnamspace = "orders"', "unknown key 'namspace'; did you mean 'namespace'?"),
        ("[prod]\nnamespace = 5", "namespace must be text"),
        ('[prod]\ninsecure = "yes"', "insecure must be true or false"),
        ('[prd]\nurl = "http://a"', "There is no profile 'prod' in .*; did you mean 'prd'?"),
        ("[prod", "cannot be read"),
        ("", "There is no profile 'prod'"),
    ],
)
def test_a_file_of_profiles_with_a_mistake_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=told):
        ConnectOptions.resolve(profile="prod", environment={"PENSTOCK_PROFILES": str(path)})


def test_a_profile_of_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.toml does not exist"):
        ConnectOptions.resolve(profile="prod", environment={"PENSTOCK_PROFILES": str(tmp_path / "none.toml")})


# Connecting to real servers, and to other programs


async def test_a_client_connects_by_the_environment(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_WORKFLOW_SERVER_URL", cluster.first.url)
    monkeypatch.setenv("DURABLE_WORKFLOW_AUTH_TOKEN", OPERATOR)
    monkeypatch.setenv("DURABLE_WORKFLOW_NAMESPACE", "default")
    async with await Client.connect() as client:
        assert (await client.count_workflows()).count == 0
        assert client.namespace == "default"


async def test_a_process_that_is_a_worker_only_connects_as_one(cluster: Cluster) -> None:
    async with await Client.connect(cluster.first.url, worker_token=WORKER) as client:
        await client.transport.work(
            "/worker/register", {"task_queue": "q", "runtime": "python"}, idempotent=True
        )


async def test_a_wrong_token_is_told_when_connecting(cluster: Cluster) -> None:
    with pytest.raises(Unauthorized):
        await Client.connect(cluster.first.url, token="wrong")


async def test_a_namespace_that_does_not_exist_is_told_at_the_first_call(cluster: Cluster) -> None:
    async with await Client.connect(cluster.first.url, token=OPERATOR, namespace="nowhere") as client:
        with pytest.raises(NamespaceNotFoundError, match="nowhere"):
            await client.count_workflows()


async def test_a_server_that_is_away_is_told_when_connecting_unless_that_is_to_be_lazy() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match="Does the server run"):
        await Client.connect(url, retry_for=timedelta(0))
    client = await Client.connect(url, retry_for=timedelta(0), lazy=True)
    with pytest.raises(Unreachable, match="Cannot reach"):
        await client.count_workflows()
    await client.close()


async def test_what_answers_in_json_and_is_no_penstock_server_is_told_apart() -> None:
    async with scripted(FINE) as script:
        with pytest.raises(Unreachable, match="not as a Penstock server does"):
            await Client.connect(script.url)


async def test_a_server_of_another_version_is_told_by_its_version() -> None:
    async with scripted(answer(200, '{"control_plane": {"version": "3"}}')) as script:
        with pytest.raises(Unreachable, match="speaks version 3 of the control plane"):
            await Client.connect(script.url)
