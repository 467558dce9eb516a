"""The command line for operators: find, read, follow, message and stop runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from durable_workflow import Client, Worker, activity, workflow
from durable_workflow.errors import ActivityFailed

from tests.support.live import PENSTOCK, LiveServer, free_port, running, server
from tests.support.patience import PATIENCE_S

QUEUE = "operated"
Steps = Generator[Any, Any, Any]


@activity.defn(name="check")
async def check(order: str) -> str:
    if order == "broken":
        raise ValueError("the order is broken")
    return f"{order} is fine"


@workflow.defn(name="operated.approval")
class Approval:
    """Checks an order, then waits for approval."""

    def __init__(self) -> None:
        self.approved_by: str | None = None
        self.note = ""

    @workflow.signal("approve")
    def approve(self, who: str) -> None:
        self.approved_by = who

    @workflow.update("annotate")
    def annotate(self, note: str) -> str:
        if not note:
            raise ValueError("a note is needed")
        self.note = note
        return f"noted: {note}"

    @workflow.query("standing")
    def standing(self) -> dict[str, Any]:
        return {"approved_by": self.approved_by, "note": self.note}

    def run(self, ctx: Any, order: str) -> Steps:
        with contextlib.suppress(ActivityFailed):
            yield [ctx.schedule_activity("check", [order]), ctx.schedule_activity("check", ["spare"])]
        yield ctx.wait_condition(lambda: self.approved_by is not None, key="approved")
        return {"approved_by": self.approved_by, "note": self.note}


@workflow.defn(name="operated.rounds")
class Rounds:
    """Goes on as another run until no rounds are left."""

    def __init__(self) -> None:
        self.is_due = False

    @workflow.signal("next")
    def next(self) -> None:
        self.is_due = True

    def run(self, ctx: Any, left: int) -> Steps:
        yield ctx.wait_condition(lambda: self.is_due, key="next")
        if left > 1:
            return ctx.continue_as_new(left - 1)
        return "round and round"


@workflow.defn(name="operated.failing")
class Failing:
    def run(self, ctx: Any, order: str) -> Steps:
        return (yield ctx.schedule_activity("check", [order]))


@dataclass(frozen=True)
class Said:
    """What a command wrote, and how it ended."""

    code: int
    out: str
    err: str

    def ok(self) -> Said:
        assert self.code == 0, self
        return self

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Operator:
    """Types commands, in the environment that `penstock dev` tells them to set."""

    url: str

    async def begin(self, *words: str) -> Process:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DURABLE_")}
        environment |= {
            "DURABLE_WORKFLOW_SERVER_URL": self.url,
            "DURABLE_WORKFLOW_AUTH_TOKEN": "admin-secret",
            "PYTHONUNBUFFERED": "1",
        }
        return await asyncio.create_subprocess_exec(
            *PENSTOCK, *words, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=PIPE
        )

    async def types(self, *words: str) -> Said:
        return await ended(await self.begin(*words))

    async def start(self, workflow_type: str, workflow_id: str, argument: object) -> None:
        words = ("--type", workflow_type, "--id", workflow_id, "-t", QUEUE, "--input", json.dumps([argument]))
        (await self.types("workflow", "start", *words)).ok()


async def ended(process: Process) -> Said:
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


async def seen(process: Process, text: str) -> str:
    """Read what a command writes until a line has this text, and return all of it."""
    assert process.stdout is not None
    lines = ""
    while text not in lines:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_S)
        assert line, f"it ended without {text!r}: {lines}"
        lines += line.decode()
    return lines


@contextlib.asynccontextmanager
async def working(url: str) -> AsyncIterator[None]:
    async with Client(
        url, control_token="operator-secret", worker_token="worker-secret", namespace="default"
    ) as client:
        worker = Worker(
            client,
            task_queue=QUEUE,
            workflows=[Approval, Rounds, Failing],
            activities=[check],
            shutdown_timeout=5.0,
        )
        run = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            await worker.stop()
            await asyncio.wait_for(run, PATIENCE_S)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("operator")
    made = server(folder, f"sqlite:///{folder}/penstock.db", port=free_port())
    with running(made):
        yield made


@pytest.fixture
def operator(live: LiveServer) -> Operator:
    return Operator(live.url)


async def test_a_run_is_found_read_followed_and_signalled_to_its_end(
    live: LiveServer, operator: Operator
) -> None:
    async with working(live.url):
        await operator.start("operated.approval", "op-1", "broken")
        follower = await operator.begin("workflow", "history", "op-1", "--follow")
        before = await seen(follower, "ConditionWaitOpened")
        assert "ValueError: the order is broken" in before
        assert "1 of 2" in before

        query = "WorkflowType = 'operated.approval' AND StartTime > '1h ago' AND WorkflowId = 'op-1'"
        found = (await operator.types("workflow", "list", "--query", query, "--json")).ok().json
        assert [row["workflow_id"] for row in found["workflows"]] == ["op-1"]
        assert (await operator.types("workflow", "count", "--query", query)).ok().out == "1\n"

        standing = await operator.types("workflow", "query", "op-1", "standing")
        assert standing.ok().json == {"approved_by": None, "note": ""}
        noted = await operator.types("workflow", "update", "op-1", "annotate", "--input", '"check the box"')
        assert noted.ok().json == "noted: check the box"
        refused = await operator.types("workflow", "update", "op-1", "annotate", "--input", '""')
        assert refused.code == 1
        assert "a note is needed" in refused.err

        still = await operator.types("workflow", "result", "op-1", "--no-wait")
        assert (still.code, still.out) == (124, "")
        (await operator.types("workflow", "signal", "op-1", "approve", "--input", '"Ada"')).ok()
        result = await operator.types("workflow", "result", "op-1", "--timeout", "60s")
        assert result.ok().json == {"approved_by": "Ada", "note": "check the box"}

        followed = await ended(follower)
        assert followed.code == 0
        assert 'approve  by admin  arguments ["Ada"]' in followed.out
        assert "WorkflowCompleted" in followed.out
        assert "completed" in followed.out.splitlines()[-3]


async def test_a_failure_is_an_exit_code_with_the_reason_and_where_to_read_on(
    live: LiveServer, operator: Operator
) -> None:
    async with working(live.url):
        await operator.start("operated.failing", "op-failing", "broken")
        failed = await operator.types("workflow", "result", "op-failing")
        assert (failed.code, failed.out) == (1, "")
        assert "the order is broken" in failed.err
        assert "penstock workflow history op-failing" in failed.err
        history = (await operator.types("workflow", "history", "op-failing")).ok().out
        assert "Traceback" in history


async def test_a_chain_of_runs_is_followed_to_its_last_one(live: LiveServer, operator: Operator) -> None:
    async with working(live.url):
        await operator.start("operated.rounds", "op-rounds", 2)
        follower = await operator.begin("workflow", "history", "op-rounds", "--follow")
        for _ in range(2):
            await seen(follower, "ConditionWaitOpened")
            (await operator.types("workflow", "signal", "op-rounds", "next")).ok()
        followed = await ended(follower)
        assert followed.code == 0
        assert followed.err.count("now following run") == 1
        assert (await operator.types("workflow", "result", "op-rounds")).ok().json == "round and round"
        runs = (await operator.types("workflow", "runs", "op-rounds", "--json")).ok().json["runs"]
        assert [run["closed_reason"] for run in runs] == ["continued", "completed"]


async def test_runs_are_stopped_one_by_one_and_all_at_once(operator: Operator) -> None:
    for number in range(3):
        await operator.start("operated.approval", f"op-stop-{number}", "fine")
    cancelled = await operator.types("workflow", "cancel", "op-stop-0", "--reason", "ordered twice")
    assert "cancel_requested" in cancelled.ok().out
    async with working(operator.url):  # its code cannot be asked to end: the run closes with its first task
        ended_how = await operator.types("workflow", "result", "op-stop-0")
    assert ended_how.code == 1
    assert "ordered twice" in ended_how.err
    again = await operator.types("workflow", "terminate", "op-stop-0")
    assert again.code == 1
    assert "run_not_active" in again.err

    query = "WorkflowId STARTS_WITH 'op-stop-'"
    preview = await operator.types("workflow", "batch", "terminate", "--query", query, "--dry-run")
    assert "Found 2 open workflows" in preview.ok().err
    unasked = await operator.types("workflow", "batch", "terminate", "--query", query)
    assert unasked.code == 2
    done = await operator.types("workflow", "batch", "terminate", "--query", query, "--yes", "--json")
    assert done.ok().json["acted"] == 2
    groups = await operator.types("workflow", "count", "--query", query, "--group-by", "status", "--json")
    assert groups.ok().json["groups"] == {"cancelled": 1, "terminated": 2}


async def test_a_run_that_nobody_works_on_is_diagnosed(operator: Operator) -> None:
    words = ("--type", "operated.approval", "--id", "op-lonely", "-t", "nobody-polls-this")
    (await operator.types("workflow", "start", *words)).ok()
    diagnosis = (await operator.types("workflow", "debug", "op-lonely")).ok()
    assert "No active worker polls the task queue nobody-polls-this." in diagnosis.out
    assert "Start a worker for the task queue." in diagnosis.out
    (await operator.types("workflow", "terminate", "op-lonely")).ok()


async def test_a_history_is_taken_out_and_its_checksum_holds(
    live: LiveServer, operator: Operator, tmp_path: Path
) -> None:
    from durable_workflow.history_bundle_verify import verify_bundle_json

    async with working(live.url):
        await operator.start("operated.approval", "op-export", "fine")
        (await operator.types("workflow", "signal", "op-export", "approve", "--input", '"Ada"')).ok()
        (await operator.types("workflow", "result", "op-export")).ok()
    file = tmp_path / "op-export.json"
    exported = await operator.types("workflow", "export", "op-export", "-o", str(file))
    assert "checksum verified" in exported.ok().err
    assert verify_bundle_json(file.read_text())["summary"]["errors"] == 0


async def test_following_outlives_a_crash_of_the_server(tmp_path: Path) -> None:
    made = server(tmp_path, f"sqlite:///{tmp_path}/penstock.db", port=free_port())
    operator = Operator(made.url)
    with running(made):
        await operator.start("operated.approval", "op-crash", "fine")
        follower = await operator.begin("workflow", "history", "op-crash", "--follow", "--json")
        await seen(follower, "WorkflowStarted")
        made.kill()
        assert follower.stderr is not None
        assert b"Retrying" in await asyncio.wait_for(follower.stderr.readline(), PATIENCE_S)
        made.start()
        (await operator.types("workflow", "terminate", "op-crash", "--reason", "over")).ok()
        followed = await ended(follower)
        assert followed.code == 0
        kinds = [json.loads(line)["event_type"] for line in followed.out.splitlines()]
        assert kinds[-1] == "WorkflowTerminated"
