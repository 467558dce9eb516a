"""Several addresses of one cluster: failover to the next, and nothing takes effect twice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.program import program
from penstock.sdk import activity
from penstock.sdk.clients.client import Client
from penstock.sdk.clients.sync_client import SyncClient
from penstock.sdk.connection.connect_options import ConnectOptions
from penstock.sdk.connection.transport import HttpTransport, RequestRetries, server_urls
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.lease import lease_clock, lease_of, leased
from penstock.sdk.worker import Worker
from penstock.sdk.worker.worker_api import WorkerApi
from tests.acceptance.cluster import Cluster
from tests.sdk.connection.test_transport import FINE, HANG_UP, answer, scripted
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.live import free_port

QUICK = RequestRetries(seconds=5, first_pause_s=0.001, longest_pause_s=0.01)
TOKENS: dict[str, Any] = {"control_token": OPERATOR, "worker_token": WORKER}
AWAY = answer(503, '{"reason": "server_draining", "message": "It is shutting down."}')


def nobody() -> str:
    """An address at which nothing listens."""
    return f"http://127.0.0.1:{free_port()}"


@asynccontextmanager
async def frozen() -> AsyncIterator[str]:
    """The address of a server that accepts connections and never reads or answers."""
    over = asyncio.Event()

    async def wait(*_: object) -> None:
        await over.wait()

    serving = await asyncio.start_server(wait, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        serving.close()


@activity.defn
async def echo(text: str) -> str:
    return text


class TestAddresses:
    def test_a_list_and_a_text_with_commas_are_the_same(self) -> None:
        both = ("http://a:1", "https://b")
        assert server_urls(["http://a:1/", "https://b"]) == both
        assert server_urls(" http://a:1 , https://b,http://a:1, ") == both

    @pytest.mark.parametrize("given", ["", ",", [], ["http://a", "b:1"], "http://a,ftp://b"])
    def test_each_address_is_checked(self, given: str | list[str]) -> None:
        with pytest.raises(ValueError, match="not the address of a server"):
            server_urls(given)

    def test_arguments_environment_and_profiles_take_several(self, tmp_path: Path) -> None:
        path = tmp_path / "profiles.toml"
        path.write_text('[two]\nurl = ["http://a:1", "http://b:2"]\n')
        both, around = "http://a:1,http://b:2", {"PENSTOCK_PROFILES": str(path)}
        assert ConnectOptions.resolve(url=["http://a:1", "http://b:2"], environment=around).url == both
        assert ConnectOptions.resolve(profile="two", environment=around).url == both
        named = around | {"DURABLE_WORKFLOW_SERVER_URL": "http://a:1, http://b:2"}
        assert ConnectOptions.resolve(environment=named).url == both

    def test_a_token_goes_to_none_of_them_in_the_clear(self) -> None:
        with pytest.raises(ValueError, match="in the clear to b"):
            HttpTransport(["http://127.0.0.1:1", "http://b:2"], token="t0ken")


class TestTheNextOne:
    async def test_it_is_asked_at_once_and_stays_in_use(self) -> None:
        async with scripted(FINE, FINE) as second:
            made = HttpTransport([nobody(), second.url], retries=RequestRetries(0))
            for _ in range(2):
                assert await made.control("POST", "/x", {}, idempotent=False) == {"fine": True}
            assert made.url == second.url
            await made.close()

    @pytest.mark.parametrize("first", [HANG_UP, AWAY], ids=["hangs up", "is draining"])
    async def test_a_request_that_may_be_sent_twice_goes_to_it(self, first: bytes | None) -> None:
        async with scripted(first) as one, scripted(FINE) as two:
            made = HttpTransport([one.url, two.url], retries=RequestRetries(0))
            assert await made.control("POST", "/x", {"a": 1}, idempotent=True) == {"fine": True}
            assert len(one.heard) == len(two.heard) == 1
            await made.close()

    @pytest.mark.parametrize("first", [HANG_UP, AWAY], ids=["hangs up", "is draining"])
    async def test_a_request_that_may_have_been_carried_out_does_not(self, first: bytes | None) -> None:
        async with scripted(first) as one, scripted(FINE) as two:
            made = HttpTransport([one.url, two.url], retries=QUICK)
            with pytest.raises((Unreachable, ServerRefused)):
                await made.control("POST", "/x", {"a": 1}, idempotent=False)
            assert two.heard == []
            await made.close()

    async def test_when_all_are_away_the_error_names_each(self) -> None:
        one, two = nobody(), nobody()
        made = HttpTransport([one, two], retries=RequestRetries(0))
        with pytest.raises(Unreachable) as raised:
            await made.control("GET", "/x", idempotent=True)
        assert one in str(raised.value)
        assert two in str(raised.value)
        await made.close()

    async def test_the_log_says_once_that_it_is_in_use_and_why(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        one = nobody()
        async with scripted(FINE, FINE) as two:
            made = HttpTransport([one, two.url], retries=RequestRetries(0))
            for _ in range(2):
                await made.control("GET", "/x", idempotent=True)
            await made.close()
        [told] = [each.getMessage() for each in caplog.records if each.name == "penstock.client"]
        assert told.startswith(f"Cannot reach {one}: connection refused. ")
        assert told.endswith(f"Requests go to {two.url} now")

    async def test_a_renewal_goes_to_it_while_the_first_is_frozen_and_the_lease_lasts(self) -> None:
        """A frozen server accepts connections and never answers; the lease must not expire because of it."""
        renewed = answer(200, '{"lease_ends_after_ms": 60000}')
        async with frozen() as one, scripted(renewed) as two, asyncio.timeout(25):
            made = HttpTransport([one, two.url], retries=QUICK)
            task = leased(
                {"task_id": "t", "activity_attempt_id": "a", "lease_ends_after_ms": 4000}, lease_clock()
            )
            await WorkerApi(made, "w", "q").renew_activity(task)
            assert len(two.heard) == 1
            assert not lease_of(task).is_over
            assert made.url == two.url
            await made.close()

    async def test_the_first_is_asked_again_when_the_second_fails(self) -> None:
        async with scripted(AWAY, FINE) as one, scripted(AWAY) as two:
            made = HttpTransport([one.url, two.url], retries=QUICK)
            assert await made.control("GET", "/x", idempotent=True) == {"fine": True}
            assert (len(one.heard), len(two.heard)) == (2, 1)
            await made.close()


class TestClientsWorkersAndCommands:
    async def test_a_client_and_a_worker_connect_by_the_second_address(self, scene: Cluster) -> None:
        urls = [nobody(), scene.first.url]
        async with (
            await Client.connect(urls, namespace=scene.namespace, **TOKENS) as client,
            Worker(client, task_queue="q", activities=[echo]),
        ):
            assert await client.execute_activity(echo, "hi", id="hi", task_queue="q") == "hi"

    async def test_a_sync_client_does_so_too(self, scene: Cluster) -> None:
        def count() -> int:
            urls = f"{nobody()},{scene.first.url}"
            with SyncClient.connect(urls, namespace=scene.namespace, **TOKENS) as client:
                return client.count_workflows().count

        assert await asyncio.to_thread(count) == 0

    async def test_the_command_line_takes_several(self, scene: Cluster) -> None:
        words = ["--server", f"{nobody()},{scene.first.url}", "--token", OPERATOR, "workflow", "list"]
        read = await asyncio.to_thread(CliRunner().invoke, program, words)
        assert read.exit_code == 0, read.output
        start = ["workflow", "start", "--type", "t", "--task-queue", "q", "--id", "sent-once"]
        around = {
            "DURABLE_WORKFLOW_SERVER_URL": f"{nobody()},{scene.first.url}",
            "DURABLE_WORKFLOW_AUTH_TOKEN": OPERATOR,
            "DURABLE_WORKFLOW_NAMESPACE": scene.namespace,
        }
        started = await asyncio.to_thread(CliRunner().invoke, program, start, env=around)
        assert started.exit_code == 0, started.output

    async def test_the_command_line_names_each_that_it_could_not_reach(self) -> None:
        one, two = nobody(), nobody()
        words = ["--server", f"{one},{two}", "workflow", "list"]
        told = await asyncio.to_thread(CliRunner().invoke, program, words)
        assert told.exit_code == 3
        assert (
            f"Cannot reach {one}: connection refused. Cannot reach {two}: connection refused." in told.stderr
        )

    async def test_a_command_that_may_have_been_carried_out_is_not_sent_to_another(self) -> None:
        async with scripted(HANG_UP) as one, scripted(FINE) as two:
            words = ["--server", f"{one.url},{two.url}", "namespace", "create", "x"]
            told = await asyncio.to_thread(CliRunner().invoke, program, words)
            assert told.exit_code == 3
            assert "may have taken effect" in told.stderr
            assert two.heard == []


async def test_a_server_that_is_down_shows_no_frames_of_asyncio() -> None:
    made = HttpTransport(nobody(), retries=RequestRetries(0))
    with pytest.raises(Unreachable, match="connection refused") as raised:
        await made.control("GET", "/x", idempotent=True)
    cause = raised.value.__cause__
    assert isinstance(cause, ConnectionRefusedError)
    assert cause.__traceback__ is None
    await made.close()


async def test_a_server_that_is_down_is_told_of_at_once_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = free_port()
    refused = asyncio.Event()

    def jitter() -> float:
        refused.set()
        return 0.0

    made = HttpTransport(f"http://127.0.0.1:{port}", retries=QUICK, jitter=jitter)
    with caplog.at_level(logging.INFO, "penstock"):
        asking = asyncio.create_task(made.control("GET", "/x", idempotent=True))
        await refused.wait()
        async with scripted(FINE, port=port):
            await asking
    told = [each.getMessage() for each in caplog.records]
    assert told[0].startswith(f"Cannot reach http://127.0.0.1:{port}: ")
    assert "Trying again in" in told[0]
    assert "answers again" in told[-1]
    assert len(told) == 2, "one line for an outage, however often it is tried"
    await made.close()
