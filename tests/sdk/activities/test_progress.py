"""Heartbeat details and summaries of an activity, wherever its run is shown."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from click.testing import CliRunner, Result

from penstock.cli.program import program
from penstock.cli.timeline.progress import heartbeat_text
from penstock.core.model import Activity
from penstock.sdk import activity, workflow
from penstock.sdk.clients.client import Client
from penstock.sdk.worker import Worker
from penstock.wire.activities.progress import HEARTBEAT_CHARS_MAX, last_heartbeat
from tests.acceptance.cluster import Cluster
from tests.support.sdk import Watched

LONG = timedelta(minutes=5)


class Copying:
    """An activity that reports its progress and waits."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    @activity.defn(name="copy_rows")
    async def copy_rows(self) -> str:
        activity.heartbeat({"row": 40}, "of 100")
        await self.may_end.wait()
        return "copied"


@workflow.defn
class Migration:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            "copy_rows",
            start_to_close_timeout=LONG,
            heartbeat_timeout=LONG,
            summary="invoices of 2024",
            result_type=str,
        )


async def command(scene: Cluster, *words: str) -> Result:
    environment = {
        "DURABLE_WORKFLOW_SERVER_URL": scene.first.url,
        "DURABLE_WORKFLOW_AUTH_TOKEN": "operator-secret",
        "DURABLE_WORKFLOW_NAMESPACE": scene.namespace or "default",
        "COLUMNS": "200",
    }
    return await asyncio.to_thread(CliRunner().invoke, program, list(words), env=environment)


async def test_describe_history_and_debug_show_the_summary_and_the_last_heartbeat(
    scene: Cluster, client: Client
) -> None:
    code, watched = Copying(), Watched(client.transport)
    own = Client(watched, namespace=client.namespace)
    async with Worker(own, task_queue="q", workflows=[Migration], activities=[code.copy_rows]):
        handle = await client.start_workflow(Migration.run, id="migration", task_queue="q")
        await watched.until("/heartbeat")
        while not (told := await handle.describe()).pending_activities[0].heartbeat_details:
            await asyncio.sleep(0.02)
        for verb in ("describe", "history", "debug"):
            shown = await command(scene, "workflow", verb, "migration")
            assert shown.exit_code == 0, shown.output
            assert "invoices of 2024" in shown.stdout, verb
            assert '[{"row": 40}, "of 100"]' in shown.stdout, verb
        open_ = told.pending_activities[0]
        assert (open_.activity_type, open_.summary) == ("copy_rows", "invoices of 2024")
        assert open_.heartbeat_details == ({"row": 40}, "of 100")
        debug = (await scene.get("/api/workflows/migration/debug", role="operator")).body
        assert debug["pending_activities"][0]["summary"] == "invoices of 2024"
        assert debug["pending_activities"][0]["last_heartbeat"]["details"]
        code.may_end.set()
        assert await handle.result() == "copied"
    assert (await handle.describe()).pending_activities == []
    shown = await command(scene, "workflow", "history", "migration")
    assert "copy_rows  (invoices of 2024)" in shown.stdout


async def test_a_standalone_activity_shows_its_last_heartbeat(scene: Cluster, client: Client) -> None:
    code, watched = Copying(), Watched(client.transport)
    own = Client(watched, namespace=client.namespace)
    async with Worker(own, task_queue="q", activities=[code.copy_rows]):
        handle = await client.start_activity(
            "copy_rows", id="alone", task_queue="q", start_to_close_timeout=LONG, heartbeat_timeout=LONG
        )
        await watched.until("/heartbeat")
        while not (told := await handle.describe()).heartbeat_details:
            await asyncio.sleep(0.02)
        assert told.heartbeat_details == ({"row": 40}, "of 100")
        shown = await command(scene, "activity", "describe", "alone")
        assert '[{"row": 40}, "of 100"]' in shown.stdout
        code.may_end.set()
        await handle.result()


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (None, None),
        ({"sequence": 3}, None),
        ({"current": 40, "total": 100, "unit": "rows", "message": "copying"}, "40 of 100 rows, copying"),
        ({"current": 0}, "0"),
        ({"details": [7]}, "7"),
        ({"details": {"a": 1}}, '{"a": 1}'),
        ({"left_out": "70,000 characters"}, "70,000 characters, too long to be shown here"),
    ],
)
def test_a_heartbeat_of_any_worker_is_one_line(told: object, text: str | None) -> None:
    assert heartbeat_text(told) == text


def test_details_that_are_too_long_are_left_out_and_said_to_be() -> None:
    stored = '{"sequence": 2, "details": "' + "x" * HEARTBEAT_CHARS_MAX + '"}'
    assert last_heartbeat(_with(stored)) == {"sequence": 2, "left_out": f"{len(stored):,} characters"}
    assert last_heartbeat(_with('{"details": 1}')) == {"details": 1}
    assert last_heartbeat(_with(None)) is None


class _Stored:
    def __init__(self, heartbeat_details: str | None) -> None:
        self.heartbeat_details = heartbeat_details


def _with(stored: str | None) -> Activity:
    return _Stored(stored)  # type: ignore[return-value]
