"""What cannot work on Temporal is refused by name, before any work is taken."""

from __future__ import annotations

import asyncio
import http.server
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from temporalio import workflow as temporal_workflow

from penstock import Client, Penstock, RetryPolicy, Worker, activity, workflow
from penstock.cli.program import program
from penstock.dispatch import load_dispatch
from penstock.engines.temporal import worker as temporal_worker
from penstock.engines.temporal.connection import (
    NotATemporalServerError,
    TemporalAddress,
    TemporalServerTooOldError,
    check_version,
)
from penstock.engines.temporal.gateway.context import priority_of, retry_policy_of
from penstock.engines.temporal.gateway.requests import id_policies
from penstock.engines.temporal.lint import WorkflowCodeRefused, look_at
from penstock.engines.temporal.support import (
    RULES,
    EngineSettingsRefused,
    SupportLevel,
    check_support,
    support_of,
)
from penstock.failures import NamespaceNotFoundError, NotOnThisEngineError, ServerRefused, Unreachable
from penstock.sdk.app_config.app import AppConfig
from penstock.sdk.worker.options import WorkerOptions
from penstock.sdk.workflows.definitions import WorkflowDefinition
from tests.support.patience import PATIENCE_S
from tests.support.temporal import TemporalServer

BRIEFLY = timedelta(milliseconds=100)


@activity.defn
async def nothing() -> None: ...


@workflow.defn
class UsesWhatIsLacking:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(nothing, cost_estimate=3, start_delay=None)
        await workflow.execute_child_workflow("Other", business_key="k")


@workflow.defn
class MixesBoth:
    @workflow.run
    async def run(self) -> None:
        await temporal_workflow.sleep(1)


@workflow.defn
class HidesIt:
    """The parser cannot see what a variable holds, so it is refused at the call."""

    def __init__(self) -> None:
        self.refused = ""

    @workflow.run
    async def run(self) -> str:
        options: Any = {"cost_estimate": 3}
        try:
            await workflow.execute_activity(nothing, **options)
        except NotOnThisEngineError as error:
            return error.reason
        return ""


# Addresses


@pytest.fixture
def web_server() -> Iterator[int]:
    """An ordinary web server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


async def test_something_else_on_the_port_is_named(web_server: int) -> None:
    with pytest.raises(NotATemporalServerError, match="another program may be listening"):
        await Client.connect(f"temporal://127.0.0.1:{web_server}", retry_for=BRIEFLY)


async def test_nothing_on_the_port_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="cannot be reached"):
        await Client.connect("temporal://127.0.0.1:1", retry_for=BRIEFLY)


async def test_an_unknown_namespace_is_named(temporal: TemporalServer) -> None:
    with pytest.raises(NamespaceNotFoundError, match="no namespace 'nowhere'"):
        await Client.connect(f"temporal://{temporal.target}/nowhere")


def test_a_server_that_is_too_old_is_named() -> None:
    with pytest.raises(TemporalServerTooOldError, match=r"version 1\.20\.4; Penstock needs 1\.24\.0"):
        check_version("1.20.4", "here:7233")
    check_version("1.32.0", "here:7233")


@pytest.mark.parametrize(
    "address",
    [
        "temporal://",
        "temporal://host:port",
        "temporal://host/a/b",
        "temporal://user:secret@host",
        "temporal://host?ca=x",
        "temporals://host?certificate=x",
    ],
)
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        TemporalAddress.parse(address)


def test_an_address_names_host_port_namespace_and_tls() -> None:
    found = TemporalAddress.parse("temporals://cloud.example:443/orders.prod?domain=other")
    assert (found.target, found.namespace, found.uses_tls) == ("cloud.example:443", "orders.prod", True)
    assert TemporalAddress.parse("127.0.0.1:7233") == TemporalAddress("127.0.0.1", 7233)


async def test_an_api_key_does_not_travel_in_the_clear() -> None:
    with pytest.raises(ValueError, match="without encryption"):
        await Client.connect("temporal://elsewhere.example:7233", token="secret", retry_for=BRIEFLY)


# Code


async def test_a_worker_refuses_workflows_that_use_what_temporal_lacks(temporal_client: Client) -> None:
    worker = Worker(temporal_client, task_queue="q", workflows=[UsesWhatIsLacking], activities=[nothing])
    with pytest.raises(WorkflowCodeRefused) as refused:
        await worker.run()
    messages = [each.message for each in refused.value.findings]
    assert messages == [
        "execute_activity(cost_estimate=…) is not available on Temporal",
        "execute_child_workflow(business_key=…) is not available on Temporal",
    ]


def test_functions_of_the_other_sdk_are_found() -> None:
    [found] = look_at(WorkflowDefinition.of(MixesBoth))
    assert "temporal_workflow is of temporalio" in found.message
    assert found.place.startswith(__file__)


async def test_what_the_parser_cannot_see_is_refused_at_the_call(temporal_client: Client) -> None:
    async with Worker(temporal_client, task_queue="hidden", workflows=[HidesIt], activities=[nothing]):
        assert await temporal_client.execute_workflow(HidesIt, task_queue="hidden") == "not_on_this_engine"


@workflow.defn
class ReadsTheClock:
    def __init__(self) -> None:
        self.seen = ""

    @workflow.run
    async def run(self) -> str:
        import time

        with pytest.raises(workflow.DeterminismViolationError):
            time.time()
        return "swallowed"


async def test_the_determinism_guard_watches_there_too(temporal_client: Client) -> None:
    async with Worker(temporal_client, task_queue="clock", workflows=[ReadsTheClock]):
        handle = await temporal_client.start_workflow(ReadsTheClock, task_queue="clock")
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await _task_failures(handle)):
                await asyncio.sleep(0.05)
        assert "use workflow.time()" in found[0]
        await handle.terminate()


async def _task_failures(handle: Any) -> list[str]:
    events = (await handle.fetch_history()).events
    return [
        each["payload"]["failure"]["message"]
        for each in events
        if each["event_type"] == "WORKFLOW_TASK_FAILED"
    ]


# Requests


async def test_a_request_that_temporal_cannot_answer_is_refused(temporal_client: Client) -> None:
    with pytest.raises(NotOnThisEngineError, match="GET /schedules/s/history is not available on Temporal"):
        await anext(temporal_client.get_schedule_handle("s").fetch_history_events())


async def test_a_field_that_temporal_lacks_is_refused(temporal_client: Client) -> None:
    with pytest.raises(NotOnThisEngineError, match="business_key of a start"):
        await temporal_client.start_workflow("Any", task_queue="q", business_key="k")
    with pytest.raises(NotOnThisEngineError, match="cost_estimate of a standalone activity"):
        await temporal_client.start_activity("any", task_queue="q", cost_estimate=2)
    with pytest.raises(NotOnThisEngineError, match="concurrency_key of a start"):
        await temporal_client.start_workflow("Any", task_queue="q", concurrency_key="k")


async def test_a_start_that_our_server_refuses_is_refused_in_its_words(temporal_client: Client) -> None:
    start = {"workflow_type": "Any", "task_queue": "q"}
    for body in ({"task_queue": "q"}, start | {"input": "no list"}, start | {"run_timeout_seconds": "1"}):
        with pytest.raises(ServerRefused) as refusal:
            await temporal_client.transport.control("POST", "/workflows", body, idempotent=False)
        assert (refusal.value.status, refusal.value.reason) == (422, "validation_failed")


async def test_a_parameter_that_would_be_ignored_is_refused(temporal_client: Client) -> None:
    with pytest.raises(NotOnThisEngineError, match="the parameter business_key of GET /workflows"):
        await temporal_client.transport.control(
            "GET", "/workflows", idempotent=True, query={"business_key": "k"}
        )


async def test_declared_schedules_are_refused_by_name(temporal: TemporalServer) -> None:
    app = Penstock("declares", temporal.url)

    @app.task(schedule="0 3 * * *")
    def nightly() -> None: ...

    with pytest.raises(NotOnThisEngineError, match=r"a declared schedule \(declares\.nightly\)"):
        await app.apply_schedules()
    await app.close()


def test_every_option_of_a_worker_is_passed_on_or_refused() -> None:
    source = inspect.getsource(temporal_worker)
    assert [each.name for each in fields(WorkerOptions) if f"options.{each.name}" not in source] == []


@pytest.mark.parametrize("coefficient", [1.0, 1.3, 2.0, 7.5])
@pytest.mark.parametrize("first_ms", [0, 1, 7, 1000])
def test_a_retry_policy_arrives_as_it_was_given(first_ms: int, coefficient: float) -> None:
    given = RetryPolicy(
        initial_interval=timedelta(milliseconds=first_ms),
        backoff_coefficient=coefficient,
        maximum_interval=timedelta(seconds=60),
        maximum_attempts=9,
        non_retryable_error_types=["Fatal"],
    )
    found = retry_policy_of(given.on_the_wire())
    assert (found.maximum_attempts, list(found.non_retryable_error_types or ())) == (9, ["Fatal"])
    pairs = zip(found.pauses_ms(), given.pauses_ms(), strict=False)
    assert all(abs(one - other) <= max(1, other / 20) for one, other in pairs)


def test_pauses_of_a_command_are_those_of_the_policy() -> None:
    assert retry_policy_of({"max_attempts": 3, "backoff_seconds": [2, 6]}).pauses_ms() == [2000, 6000]
    assert retry_policy_of(None).maximum_attempts == 1  # a failure is final, as on our server
    with pytest.raises(NotOnThisEngineError, match="do not grow by one factor"):
        retry_policy_of({"max_attempts": 5, "backoff_seconds": [1, 10, 11, 40]})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, ("allow_duplicate", "fail")),
        ({"duplicate_policy": "use-existing"}, ("reject_duplicate", "use_existing")),
        ({"duplicate_policy": "fail", "id_reuse_policy": "allow_duplicate"}, ("allow_duplicate", "fail")),
        ({"id_conflict_policy": "terminate_existing"}, ("allow_duplicate", "terminate_existing")),
    ],
)
def test_an_id_in_use_is_treated_as_the_request_says(body: dict[str, Any], expected: tuple[str, str]) -> None:
    assert id_policies(body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"priority": {"priority_key": 2, "fairness_key": "a"}}, (2, "a", None)),
        ({"priority_key": 2, "fairness_key": "a", "fairness_weight": 0.5}, (2, "a", 0.5)),
        ({"priority": 9}, (5, None, None)),
    ],
)
def test_a_priority_is_found_wherever_a_request_has_it(body: dict[str, Any], expected: Any) -> None:
    found = priority_of(body)
    assert (found.priority_key, found.fairness_key, found.fairness_weight) == expected
    with pytest.raises(NotOnThisEngineError, match="priority level 4"):
        priority_of({"priority": 4})


def test_a_profile_with_one_slot_for_workflow_tasks_is_approximated(tmp_path: Path) -> None:
    path = tmp_path / "dispatch.toml"
    path.write_text("[penstock.worker_runtime_profiles.profiles.small]\nmax_concurrent_workflow_tasks = 1\n")
    levels = {each.path: each.level for each in support_of(load_dispatch(path))}
    found = levels["worker_runtime_profiles.profiles.small.max_concurrent_workflow_tasks"]
    assert found is SupportLevel.APPROXIMATED


async def test_options_of_a_worker_that_temporal_lacks_are_refused(temporal_client: Client) -> None:
    for options in (
        {"all_in_processes": True},
        {"process_recycle_over_bytes": 1},
        {"report_source_lines": True},
    ):
        worker = Worker(temporal_client, task_queue="q", activities=[nothing], **options)
        with pytest.raises(NotOnThisEngineError):
            await worker.run()
    worker = Worker(temporal_client, task_queues=["a", "b"], activities=[nothing])
    with pytest.raises(NotOnThisEngineError, match="several task queues"):
        await worker.run()


# Settings

SCHEDULED = """
[penstock.worker_config]
default_task_queue = "home"
[penstock.schedules.nightly]
workflow = "Any"
cron = ["0 3 * * *"]
"""


def test_every_setting_of_a_file_is_judged_by_a_rule() -> None:
    config = load_dispatch(Path(__file__).parents[2] / "dispatch" / "pipelines.toml")
    found = support_of(config)
    assert {each.level for each in found} == {SupportLevel.ENFORCED, SupportLevel.APPROXIMATED}
    assert all(each.how != "Temporal has nothing for it" for each in found)


def test_an_unknown_setting_is_refused_rather_than_ignored() -> None:
    from penstock.engines.temporal import support

    assert support._judged("a.new.setting", 1, "file").level is SupportLevel.REFUSED


def test_caps_of_an_app_are_refused_unless_approximations_are_allowed() -> None:
    app = AppConfig(cluster_wide_cap=15)
    with pytest.raises(EngineSettingsRefused, match="cluster_wide_cap"):
        check_support(None, app)
    found = {each.path for each in check_support(None, app, allow_approximate=True)}
    assert "app.cluster_wide_cap" in found


def test_options_of_tasks_that_temporal_lacks_are_refused() -> None:
    app = Penstock("tasks", config=AppConfig(caps_version=2))

    @app.task(good_until=timedelta(seconds=5), retry=2)
    def perishable() -> None: ...

    @app.task(schedule="0 3 * * *", on_lost_lease="redeliver")
    def nightly() -> None: ...

    tasks = {name: each.options for name, each in app.tasks.items()}
    levels = {each.path: each.level for each in support_of(None, app.config, tasks, app.schedules)}
    assert {path for path, level in levels.items() if level is SupportLevel.REFUSED} == {
        "app.tasks.perishable.good_until",
        "app.tasks.nightly.on_lost_lease",
        "app.schedules.nightly",
    }
    assert levels["app.tasks.perishable.retry"] is SupportLevel.ENFORCED
    assert levels["app.caps_version"] is SupportLevel.ENFORCED


def test_every_setting_of_an_app_and_of_a_task_has_a_rule() -> None:
    patterns = {each.pattern for each in RULES}
    own = {f"app.{each.name}" for each in fields(AppConfig)} - {"app.custom_queues"}
    assert own <= patterns
    assert "app.tasks.**" in patterns


async def test_a_worker_refuses_settings_before_it_takes_work(
    temporal: TemporalServer, temporal_client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "dispatch.toml"
    path.write_text(SCHEDULED)
    config = load_dispatch(path)
    worker = Worker(temporal_client, task_queue="home", activities=[nothing], dispatch=config)
    with pytest.raises(EngineSettingsRefused, match=r"schedules\.nightly"):
        await worker.run()
    async with (
        await Client.connect(temporal.url, allow_approximate=True) as client,
        Worker(client, task_queue="home", activities=[nothing], dispatch=config) as running,
    ):
        assert running.is_running


# Commands


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--server", "temporal://a,temporal://b"], "invalid_address"),
        (["--server", "temporals://127.0.0.1:1/x?ca=/no/such/file"], "cannot be read"),
        (["--server", "temporal://127.0.0.1:1", "--signature-key", "operator:abc"], "pass the API key"),
    ],
)
def test_a_command_names_what_is_wrong_with_its_connection(words: list[str], expected: str) -> None:
    done = CliRunner().invoke(program, [*words, "workflow", "list"])
    assert done.exit_code in (1, 2)
    assert expected in done.output


def test_config_check_lists_every_setting_and_exits_1_if_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dispatch.toml"
    path.write_text(SCHEDULED)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "config",
        "check",
        "--engine",
        "temporal",
        "--config",
        str(path),
    ]
    done = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    levels = {each["path"]: each["level"] for each in json.loads(done.stdout)["settings"]}
    assert levels["worker_config.default_task_queue"] == "enforced"
    assert levels["queue_rate_burst_seconds"] == "approximated"
    assert levels["schedules.nightly.cron"] == "refused"


def test_the_worker_command_refuses_the_same(tmp_path: Path) -> None:
    path = tmp_path / "dispatch.toml"
    path.write_text(SCHEDULED)
    command = [sys.executable, "-m", "penstock", "worker", "tests.engines.temporal.pipelines_app:app"]
    command += [
        "--engine",
        "temporal",
        "--address",
        "127.0.0.1:1",
        "--config",
        str(path),
        "--task-queue",
        "home",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 2
    assert "not_on_this_engine" in done.stderr
    assert "schedules.nightly.cron" in done.stderr
