"""The same small workflows on three engines: in memory, on our server, and on Temporal.

Each scenario has one expected outcome. All scenarios of an engine run concurrently in one worker; the tests compare
the outcomes, what the activities did, and let Temporal's own replayer judge each history.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client as TemporalClient
from temporalio.worker import Replayer

from penstock import Client, Worker, activity, failures, workflow
from penstock.engines.temporal.definitions import temporal_class
from penstock.engines.temporal.payloads import CONVERTER
from penstock.engines.temporal.port import RunSettings
from penstock.engines.temporal.runner import GuardedRunner
from penstock.sdk.workflows.definitions import WorkflowDefinition
from penstock.testing import WorkflowEnvironment
from tests.engines.temporal.scenarios import acts, awaits, calls, cancelling, family, messages, mixed, runs
from tests.engines.temporal.scenarios.base import JOURNAL, SCENARIOS, World, root_of
from tests.sdk.server_fixtures import connected, serving
from tests.support.patience import PATIENCE_S
from tests.support.temporal import TemporalServer

MODULES = (awaits, calls, cancelling, family, messages, mixed, runs)
ENGINES = ("memory", "server", "temporal")
HELPERS = family.HELPERS + cancelling.HELPERS + awaits.HELPERS + mixed.HELPERS
WORKFLOWS = [each.workflow for each in SCENARIOS.values()] + HELPERS
QUEUE = "conformance"

Outcomes = dict[str, Any]


async def play(engine: str, client: Client) -> Outcomes:
    """Run all scenarios on one engine. An exception is an outcome, too: its test shows it."""
    worlds = [World(engine, client, QUEUE, each) for each in SCENARIOS.values()]
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=WORKFLOWS,
        activities=acts.ALL,
        max_heartbeat_throttle_interval=timedelta(milliseconds=100),
        debug_mode=True,  # code that is not scheduled for 2 s would count as stuck, and be tried again ever later
    ):
        if engine in JOURNAL.clocks:  # time can only be skipped for one at a time
            found = [await _settled(_outcome(each)) for each in worlds]
        else:
            found = await asyncio.gather(*(_settled(_outcome(each)) for each in worlds))
    return dict(zip(SCENARIOS, found, strict=True))


async def _settled(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:
        return error


async def _outcome(world: World) -> Any:
    await world.client.start_workflow(
        world.scenario.workflow,
        args=world.scenario.args,
        id=world.id,
        task_queue=QUEUE,
        **world.scenario.start,
    )
    async with asyncio.timeout(PATIENCE_S):
        return await world.scenario.drive(world)


@pytest.fixture(scope="module")
async def on_memory() -> Outcomes:
    async with await WorkflowEnvironment.start_time_skipping() as env:
        JOURNAL.clocks["memory"] = env.sleep
        await register_attributes(env.client)
        return await play("memory", env.client)


@pytest.fixture(scope="module")
async def on_server(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    async with serving(tmp_path_factory.mktemp("conformance")) as cluster, await connected(cluster) as client:
        await register_attributes(client)
        return await play("server", client)


@pytest.fixture(scope="module")
async def on_temporal(temporal: TemporalServer) -> Outcomes:
    async with await Client.connect(temporal.url) as client:
        return await play("temporal", client)


async def register_attributes(client: Client) -> None:
    await client.register_search_attribute("Customer", "keyword")
    await client.register_search_attribute("Amount", "int")


@pytest.fixture(scope="module")
def outcomes(on_memory: Outcomes, on_server: Outcomes, on_temporal: Outcomes) -> dict[str, Outcomes]:
    return {"memory": on_memory, "server": on_server, "temporal": on_temporal}


def test_there_are_at_least_sixty_scenarios() -> None:
    assert len(SCENARIOS) >= 60
    guide = Path(__file__).parents[3] / "docs" / "guides" / "temporal.md"
    assert f"{len(SCENARIOS)} small workflows" in guide.read_text()


ELSEWHERE = {
    "message_stream",  # refused on Temporal
    "report_cost",  # refused on Temporal
    "shield_thread_cancel_exception",  # these need real time: see test_attempts
    "wait_for_cancelled",
    "wait_for_cancelled_sync",
    "wait_for_worker_shutdown",  # these end the worker: see test_attempts
    "wait_for_worker_shutdown_sync",
    "cancellation_details",  # these are in tests/sdk/programs
    "client",
    "payload_converter",
    "raise_complete_async",  # refused on Temporal
}
"""Functions that no scenario can have."""


@pytest.mark.parametrize(("name", "module"), [("workflow", workflow), ("activity", activity)])
def test_every_public_function_is_in_a_scenario(name: str, module: Any) -> None:
    functions = {
        each for each in module.__all__ if not isinstance(getattr(module, each), type) or each == "unsafe"
    }
    functions -= {"RoutingKeyError", "UpdateMethod", "RawValue", "arg"}
    assert functions - attributes_used(name) <= ELSEWHERE


ERRORS = (
    "ActivityError",
    "ApplicationError",
    "CancelledError",
    "ChildWorkflowError",
    "ConversionError",
    "FailureError",
    "QueryFailed",
    "QueryRejected",
    "TerminatedError",
    "TimeoutError",
    "UpdateFailedError",
    "UpdateRejectedError",
    "WorkflowAlreadyStartedError",
    "WorkflowClosedError",
    "WorkflowFailureError",
    "WorkflowNotFoundError",
)
"""The errors that workflow code, and those who send messages to it, can meet on every engine."""


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_is_in_a_scenario(error: str) -> None:
    assert issubclass(getattr(failures, error), Exception)
    caught = {
        name.id if isinstance(name, ast.Name) else name.attr
        for handler in ast.walk(SOURCE)
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None
        for name in ast.walk(handler.type)
        if isinstance(name, ast.Name | ast.Attribute)
    }
    expected = {repr(error) in repr(each.expected) for each in SCENARIOS.values()}
    assert error in caught or True in expected


SOURCE = ast.Module(
    [node for each in (acts, *MODULES) for node in ast.parse(inspect.getsource(each)).body], []
)


def attributes_used(module: str) -> set[str]:
    """The attributes of a module that the scenarios use."""
    return {
        node.attr
        for node in ast.walk(SOURCE)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module
    }


@pytest.mark.parametrize("name", sorted(SCENARIOS))
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_scenario_has_its_outcome(engine: str, name: str, outcomes: dict[str, Outcomes]) -> None:
    found = outcomes[engine][name]
    if isinstance(found, BaseException):
        raise found
    assert plain(found) == plain(SCENARIOS[name].expected)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_activities_are_called_alike(name: str, outcomes: dict[str, Outcomes]) -> None:
    called = {engine: Counter(JOURNAL.calls[f"{engine}-{name}"]) for engine in ENGINES}
    assert called["memory"] == called["server"]
    assert called["server"] == called["temporal"]


@pytest.fixture(scope="module")
async def histories(on_temporal: Outcomes, temporal: TemporalServer) -> dict[str, list[Any]]:
    """All histories of the conformance runs on Temporal, by scenario."""
    client = await TemporalClient.connect(temporal.target, data_converter=CONVERTER)
    found: dict[str, list[Any]] = {name: [] for name in SCENARIOS}
    async for run in client.list_workflows(f"TaskQueue = '{QUEUE}'"):
        name = root_of(run.id).removeprefix("temporal-")
        if name in found:
            found[name].append(await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history())
    return found


@pytest.mark.parametrize("name", sorted(SCENARIOS))
async def test_temporals_replayer_accepts_the_history(name: str, histories: dict[str, list[Any]]) -> None:
    classes = [temporal_class(WorkflowDefinition.of(each), RunSettings()) for each in WORKFLOWS]
    runner = GuardedRunner()
    replayer = Replayer(
        workflows=classes,
        data_converter=CONVERTER,
        workflow_runner=runner,
        unsandboxed_workflow_runner=runner,
    )
    assert histories[name]
    for history in histories[name]:
        await replayer.replay_workflow(history)


def plain(value: Any) -> Any:
    """Return data without the difference between tuples and lists."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value
