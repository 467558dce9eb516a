"""Schedules that tasks declare: applied by a worker, beside what operators change."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from penstock import Client, Penstock, ScheduleSpec
from penstock.client import (
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from penstock.dispatch import DispatchConfigError, dispatch_from
from tests.acceptance.cluster import Cluster
from tests.sdk.server_fixtures import OPERATOR, WORKER
from tests.support.patience import PATIENCE_S

Deploy = Callable[..., Any]


@pytest.fixture
def deploy(scene: Cluster) -> Deploy:
    """Starts a version of the app whose task has these options; returns what its worker logs."""

    async def deploying(**options: Any) -> list[str]:
        tokens: dict[str, Any] = {"control_token": OPERATOR, "worker_token": WORKER} | options.pop(
            "tokens", {}
        )
        async with Penstock("shop", scene.first.url, namespace=scene.namespace, **tokens) as app:
            app.task(name="clean_up", **options)(lambda: None)
            return [each.message for each in await app.apply_schedules()]

    return deploying


async def described(client: Client) -> ScheduleDescription:
    return await client.get_schedule_handle("shop.clean_up").describe()


async def test_a_declared_schedule_sends_its_task(client: Client, scene: Cluster) -> None:
    ran: list[str] = []
    async with Penstock(
        "shop", scene.first.url, namespace=scene.namespace, control_token=OPERATOR, worker_token=WORKER
    ) as app:

        @app.task(schedule="0 3 * * *", timeout=timedelta(minutes=1), good_until=timedelta(hours=1))
        def clean_up(folder: str = "/tmp") -> str:
            ran.append(folder)
            return folder

        assert [each.message for each in await app.apply_schedules()] == [
            "Created the schedule shop.clean_up"
        ]
        async with app.worker(await app.client()):
            started = (await client.get_schedule_handle("shop.clean_up").trigger()).action
            assert started is not None
            assert await app.handle(started.workflow_id).result(timeout=PATIENCE_S) == "/tmp"
    assert ran == ["/tmp"]
    found = await described(client)
    assert found.schedule.spec.cron_expressions == ["0 3 * * *"]
    assert found.memo["declared_by"] == "shop"
    action = found.raw["action"]
    assert (action["start_to_close_timeout_seconds"], action["schedule_to_start_timeout_seconds"]) == (
        60,
        3600,
    )


async def test_a_live_pause_survives_a_deploy(client: Client, deploy: Deploy) -> None:
    await deploy(schedule="0 3 * * *")
    handle = client.get_schedule_handle("shop.clean_up")
    await handle.pause(note="migration")
    assert await deploy(schedule="0 3 * * *") == []
    changed = await deploy(schedule=ScheduleSpec(cron_expressions=["0 4 * * *"], time_zone_name="Asia/Tokyo"))
    assert changed == ["Changed the schedule shop.clean_up, whose declaration changed"]
    found = await described(client)
    assert (found.schedule.state.paused, found.schedule.state.note) == (True, "migration")
    assert found.schedule.spec.time_zone_name == "Asia/Tokyo"


async def test_what_an_operator_changed_stays_until_the_declaration_changes(
    client: Client, deploy: Deploy
) -> None:
    await deploy(schedule="0 3 * * *")

    def often(update: ScheduleUpdateInput) -> ScheduleUpdate:
        schedule = update.description.schedule
        schedule.spec.cron_expressions = ["*/5 * * * *"]
        schedule.policy.overlap = ScheduleOverlapPolicy.ALLOW_ALL
        return ScheduleUpdate(schedule)

    await client.get_schedule_handle("shop.clean_up").update(often)
    await deploy(schedule="0 3 * * *")
    assert (await described(client)).schedule.spec.cron_expressions == ["*/5 * * * *"]
    await deploy(schedule=timedelta(hours=6))
    found = (await described(client)).schedule
    assert (found.spec.cron_expressions, len(found.spec.intervals)) == ([], 1)
    assert found.policy.overlap is ScheduleOverlapPolicy.ALLOW_ALL


async def test_a_schedule_without_its_declaration_is_paused_and_a_rollback_resumes_it(
    client: Client, deploy: Deploy
) -> None:
    await deploy(schedule="0 3 * * *")
    assert await deploy() == ["Paused the schedule shop.clean_up, which shop declares no more"]
    assert (await described(client)).schedule.state.note == "shop declares it no more"
    assert await deploy() == []
    assert await deploy(schedule="0 3 * * *") == []
    assert not (await described(client)).schedule.state.paused


async def test_an_option_that_is_gone_is_gone_from_the_schedule(client: Client, deploy: Deploy) -> None:
    await deploy(schedule="0 3 * * *", timeout=timedelta(minutes=1))
    await client.get_schedule_handle("shop.clean_up").pause(note="migration")
    await deploy(schedule="0 3 * * *")
    found = await described(client)
    assert "start_to_close_timeout_seconds" not in found.raw["action"]
    assert (found.schedule.state.paused, found.schedule.state.note) == (True, "migration")


async def test_a_schedule_that_others_created_is_left_alone(client: Client, deploy: Deploy) -> None:
    await deploy(schedule="0 3 * * *")
    before = (await described(client)).schedule
    handle = client.get_schedule_handle("shop.clean_up")
    await handle.delete()
    await client.create_schedule("shop.clean_up", before)
    assert await deploy(schedule="0 5 * * *") == [
        "The schedule shop.clean_up was not created by its declaration, and stays as it is"
    ]
    assert (await described(client)).schedule.spec.cron_expressions == ["0 3 * * *"]


async def test_a_token_that_may_not_change_schedules_is_reported(deploy: Deploy) -> None:
    only_worker = {"control_token": WORKER}
    (notice,) = await deploy(schedule="0 3 * * *", tokens=only_worker)
    assert "token may not change schedules" in notice
    assert await deploy(tokens=only_worker) == []


def test_what_cannot_be_declared_is_refused_where_it_is_written() -> None:
    app = Penstock("shop")
    with pytest.raises(TypeError, match="needs folder"):
        app.task(schedule="0 3 * * *")(lambda folder: folder)
    with pytest.raises(TypeError, match="schedule is a cron expression"):
        app.task(schedule=3)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="good_until of a task with a schedule is a timedelta"):
        until = datetime.fromisoformat("2046-01-01T00:00:00+00:00")
        app.task(name="late", schedule="0 3 * * *", good_until=until)(lambda: None)


async def test_a_dispatch_file_declares_schedules_too(client: Client, scene: Cluster) -> None:
    config = dispatch_from(
        {
            "worker_config": {"default_task_queue": "home"},
            "queue_options": {"mail": {"start_to_close_timeout": "2m"}},
            "schedules": {
                "nightly": {
                    "cron": ["0 3 * * *"],
                    "timezone": "Europe/Berlin",
                    "workflow": "report",
                    "args": [1],
                },
                "clean_up": {"every": "15m", "jitter": "30s", "activity": "clean_up", "task_queue": "mail"},
            },
        }
    )
    async with Penstock(
        "shop", scene.first.url, namespace=scene.namespace, control_token=OPERATOR, worker_token=WORKER
    ) as app:
        app.task(name="clean_up", schedule="0 3 * * *")(lambda: None)
        assert len(await app.apply_schedules(config)) == 2
        assert await app.apply_schedules(config) == []
    found = await described(client)
    assert found.schedule.spec.intervals == [ScheduleIntervalSpec(timedelta(minutes=15))]
    assert found.schedule.spec.jitter == timedelta(seconds=30)
    action = found.raw["action"]
    assert (action["task_queue"], action["start_to_close_timeout_seconds"]) == ("mail", 120)
    nightly = (await client.get_schedule_handle("shop.nightly").describe()).schedule
    assert isinstance(nightly.action, ScheduleActionStartWorkflow)
    assert (nightly.action.workflow, nightly.action.args, nightly.action.task_queue) == (
        "report",
        [1],
        "home",
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"cron": ["@daily"]}, "must have `workflow` or `activity`"),
        ({"cron": ["@daily"], "workflow": "a", "activity": "b"}, "must have `workflow` or `activity`"),
        ({"workflow": "a"}, "needs one of cron, every"),
        ({"cron": "@daily", "workflow": "a"}, "must be a list of cron expressions"),
        ({"every": "soon", "workflow": "a"}, "schedules.nightly.every"),
        ({"every": "1h", "workflow": "a", "args": 3}, "args must be a list"),
        ({"every": "1h", "workflow": "a", "args": [datetime(2026, 1, 1)]}, "values that JSON has"),  # noqa: DTZ001
        ({"every": "1h", "workflw": "a"}, "did you mean 'workflow'"),
    ],
)
def test_what_a_file_gets_wrong_is_named(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(DispatchConfigError, match=re.escape(problem)):
        dispatch_from({"schedules": {"nightly": given}})
