"""A server that requires signatures: client, worker and command line sign requests, or say what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.program import program
from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.sync_client import SyncClient
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.connection.signing import SigningKey
from penstock.sdk.connection.transport import HttpTransport, RequestRetries
from penstock.sdk.failures import ServerRefused, Unauthorized
from penstock.sdk.worker import Worker
from tests.acceptance.cluster import Cluster
from tests.sdk.connection.test_transport import FINE, HANG_UP, scripted
from tests.sdk.server_fixtures import serving

KEYS = {role: f"{role}-signature-secret" for role in ("worker", "operator", "admin")}
SETTINGS = {
    "DW_AUTH_DRIVER": "signature",
    **{f"DW_{role.upper()}_SIGNATURE_KEY": key for role, key in KEYS.items()},
    "DW_WORKER_TOKEN": "",
    "DW_OPERATOR_TOKEN": "",
    "DW_ADMIN_TOKEN": "",
}
OPTIONS: dict[str, Any] = {
    "signature_key": f"operator:{KEYS['operator']}",
    "worker_signature_key": KEYS["worker"],
}


@pytest.fixture(scope="module", params=["penstock", "body"])
async def signed_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Cluster, str]]:
    folder = tmp_path_factory.mktemp("signed")
    async with serving(folder, **SETTINGS, DW_SIGNATURE_PROFILE=request.param) as made:
        yield made, request.param


@activity.defn
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@workflow.defn(name="SignedGreeter")
class Greeter:
    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_local_activity(greet, name)


async def command(*words: str, **environment: str) -> Result:
    blank = dict.fromkeys(("DURABLE_WORKFLOW_AUTH_TOKEN", "DURABLE_WORKFLOW_SERVER_URL"), "")
    return await asyncio.to_thread(CliRunner().invoke, program, list(words), env=blank | environment)


class TestAServerThatWantsSignatures:
    async def test_client_and_worker_sign_all_that_they_send(
        self, signed_server: tuple[Cluster, str]
    ) -> None:
        cluster, profile = signed_server
        async with await Client.connect(cluster.first.url, signature_profile=profile, **OPTIONS) as client:
            async with Worker(client, task_queue="q", workflows=[Greeter], activities=[greet]):
                started = client.execute_workflow(Greeter.run, "Ada", id="signed-1:a", task_queue="q")
                assert await started == "Hello, Ada!"
            found = [each.id async for each in client.list_workflows("WorkflowType = 'SignedGreeter'")]
            assert found == ["signed-1:a"]

    async def test_a_sync_client_takes_its_keys_from_the_environment(
        self, signed_server: tuple[Cluster, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cluster, profile = signed_server
        monkeypatch.setenv("DW_OPERATOR_SIGNATURE_KEY", KEYS["operator"])
        monkeypatch.setenv("DW_SIGNATURE_PROFILE", profile)

        def count() -> int:
            with SyncClient.connect(cluster.first.url) as client:
                return client.count_workflows().count

        assert await asyncio.to_thread(count) >= 0

    async def test_the_command_line_signs(self, signed_server: tuple[Cluster, str]) -> None:
        cluster, profile = signed_server
        around = {"DW_SIGNATURE_PROFILE": profile, "DURABLE_WORKFLOW_SERVER_URL": cluster.first.url}
        made = await command("namespace", "create", profile, DW_ADMIN_SIGNATURE_KEY=KEYS["admin"], **around)
        assert made.exit_code == 0, made.output
        key = ("--signature-key", f"operator:{KEYS['operator']}")
        listed = await command("workflow", "list", "--query", "WorkflowType = 'x y'", *key, **around)
        assert listed.exit_code == 0, listed.output

    async def test_without_a_key_both_say_what_to_give_them(self, signed_server: tuple[Cluster, str]) -> None:
        cluster, _ = signed_server
        told = await command("workflow", "list", "--token", "t", "--server", cluster.first.url)
        assert told.exit_code == 1
        assert "DW_OPERATOR_SIGNATURE_KEY" in told.stderr
        assert "Pass --token" not in told.stderr
        with pytest.raises(Unauthorized, match="signature_key=") as raised:
            await Client.connect(cluster.first.url, token="t")
        assert raised.value.reason == "unauthorized"

    async def test_a_wrong_key_is_refused_with_its_reason(self, signed_server: tuple[Cluster, str]) -> None:
        cluster, profile = signed_server
        reason = "signature_invalid" if profile == "penstock" else "unauthorized"
        with pytest.raises(ServerRefused) as raised:
            await Client.connect(cluster.first.url, signature_key="operator:wrong", signature_profile=profile)
        assert raised.value.reason == reason


async def test_each_attempt_is_signed_anew() -> None:
    async with scripted(HANG_UP, FINE) as script:
        key = SigningKey.parse("operator:secret")
        quick = RequestRetries(seconds=5, first_pause_s=0.001)
        made = HttpTransport(script.url, control_key=key, retries=quick)
        await made.control("POST", "/x", {"a": 1}, idempotent=True)
        await made.close()
    signatures = [line for heard in script.heard for line in heard.split(b"\r\n") if b"v1=" in line]
    assert len(script.heard) == 2
    assert len(set(signatures)) == 2


async def test_a_connection_that_was_kept_and_is_closed_gets_another_signature() -> None:
    async with scripted(FINE, HANG_UP, FINE) as script:
        made = HttpTransport(
            script.url, control_key=SigningKey.parse("operator:secret"), retries=RequestRetries(0)
        )
        for _ in range(2):
            await made.control("GET", "/x", idempotent=True)
        await made.close()
    nonces = [heard.split(b"nonce=")[1].split(b";")[0] for heard in script.heard]
    assert len(set(nonces)) == len(nonces) == 3


@pytest.mark.parametrize(
    ("text", "key_id", "secret"),
    [
        ("operator:s:1", "operator", "s:1"),
        ("secret", "shared", "secret"),
        ("who:secret", "shared", "who:secret"),
    ],
)
def test_the_id_stands_before_the_key(text: str, key_id: str, secret: str) -> None:
    found = SigningKey.parse(text)
    assert (found.key_id, found.secret) == (key_id, secret)
    assert secret not in repr(found)


@pytest.mark.parametrize("wrong", [{"text": "operator:"}, {"text": "a\nb"}, {"text": "k", "profile": "v2"}])
def test_what_cannot_be_a_key_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        SigningKey.parse(**wrong)


def test_keys_of_different_sources_are_not_mixed() -> None:
    around = {"DW_WORKER_SIGNATURE_KEY": "w", "DW_SIGNATURE_KEY": "s", "PENSTOCK_PROFILES": "/nowhere"}
    found = ConnectOptions.resolve(environment=around)
    assert found.control_key == SigningKey("shared", "s")
    assert found.worker_key == SigningKey("worker", "w")
    given = ConnectOptions.resolve(signature_key="admin:a", environment=around)
    assert given.worker_key == given.control_key == SigningKey("admin", "a")
    assert ConnectOptions.resolve(token="t", environment=around).control_key is None
