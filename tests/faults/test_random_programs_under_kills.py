"""Random programs on real servers that are killed: the laws of runs hold, and everything comes to an end.

The programs and the worker that replays them are those of the engine's tests; here they speak HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.history import commands as asked
from penstock.core.model import ClosePolicy, RecordedEvent, RetryPolicy, RunId
from penstock.stores.driving import Moment
from penstock.stores.postgres import PostgresStore
from penstock.wakeups.local import LocalWakeups
from penstock.wire import payloads
from tests.engine import run_laws
from tests.engine.programs import (
    Act,
    Again,
    End,
    Group,
    Inline,
    Kid,
    Node,
    Program,
    Select,
    Sleep,
    Wait,
    next_commands,
)
from tests.faults.load import NOTHING_NEW, Caller, as_bytes
from tests.faults.record import Record
from tests.faults.servers import Doomed, serving
from tests.faults.waiting import until

pytestmark = pytest.mark.faults

QUEUE = "programs"
PROGRAMS, WORKERS, KILLS = 10, 3, 3
Json = dict[str, Any]


@pytest.fixture
def dice() -> random.Random:
    """A new seed each time; it is printed, so that a failure can be looked at again."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


# ── Programs ────────────────────────────────────────────────────────────────────────────────────────────


def a_program(dice: random.Random, depth: int = 2) -> Program:
    nodes = tuple(_node(dice, depth) for _ in range(dice.randrange(1, 5)))
    if depth and dice.random() < 0.3:
        return Program(nodes, Again(a_program(dice, depth - 1)))
    return Program(nodes, End(dice.choice(["complete", "complete", "fail"])))


def _node(dice: random.Random, depth: int) -> Node:
    kind = dice.choice(["leaf", "leaf", "wait", "inline", "group", "select"])
    if kind == "wait":
        return Wait(dice.randrange(3), dice.choice([None, 0, 1]))
    if kind == "inline":
        return Inline(dice.choice(["effect", "marker", "memo", "attributes", "completed", "failed"]))
    if kind == "leaf":
        return _leaf(dice, depth)
    leaves: list[Any] = [_leaf(dice, depth) for _ in range(dice.randrange(1, 4))]
    if kind == "group":
        return Group((*leaves, Group((_leaf(dice, 0),))))
    members = (*leaves, Group((_leaf(dice, 0), _leaf(dice, 0))), Wait(1, 1))
    return Select(members, dice.choice(["leave", "cancel", "await"]))


def _leaf(dice: random.Random, depth: int) -> Any:
    kind = dice.choice(["act", "sleep", "kid"] if depth else ["act", "sleep"])
    retry = RetryPolicy(dice.randrange(1, 4), True, (0, 1))
    if kind == "act":
        return Act(retry)
    if kind == "sleep":
        return Sleep(dice.choice([0, 1]))
    return Kid(a_program(dice, depth - 1), dice.choice(list(ClosePolicy)), retry)


# ── A worker that speaks HTTP ───────────────────────────────────────────────────────────────────────────


def on_the_wire(command: asked.Command) -> Json:
    """A command as a worker sends it."""
    match command:
        case asked.ScheduleActivity():
            told = {
                "activity_type": command.activity_type,
                "arguments": [],
                "retry_policy": _retry(command.retry),
            }
            return {"type": "schedule_activity", **told, **command.extra}
        case asked.StartTimer():
            return {"type": "start_timer", "delay_seconds": command.delay_s, **command.extra}
        case asked.StartChild():
            told = {
                "workflow_type": command.workflow_type,
                "arguments": [],
                "retry_policy": _retry(command.retry),
            }
            policy = {"parent_close_policy": command.policy.value}
            return {"type": "start_child_workflow", **told, **policy, **command.extra}
        case asked.OpenConditionWait():
            told = {
                "condition_key": command.key,
                "condition_definition_fingerprint": command.fingerprint,
                "timeout_seconds": command.timeout_s,
            }
            return {"type": "open_condition_wait", **told, **command.extra}
        case asked.RecordLocalActivity():
            told = {"activity_type": command.activity_type, "execution_mode": "local", "arguments": []}
            ended = {"result": None} if command.outcome == "completed" else {"message": "as programmed"}
            return {"type": "record_local_activity", "outcome": command.outcome, **told, **ended}
        case asked.RecordSideEffect():
            return {"type": "record_side_effect", "result": payloads.encode(1)}
        case asked.RecordVersionMarker():
            numbers = {"version": command.version, "min_supported": 0, "max_supported": 2}
            return {"type": "record_version_marker", "change_id": command.change_id, **numbers}
        case asked.UpsertSearchAttributes():
            return {"type": "upsert_search_attributes", "attributes": {}}
        case asked.UpsertMemo():
            entries = {"codec": "avro", "blob": payloads.encode(dict(command.entries))}
            return {"type": "upsert_memo", "entries": entries}
        case asked.CancelSelectionOperation():
            said = {"operation_kind": "timer", "operation_identity": "whatever"}
            return {"type": "cancel_selection_operation", **command.echoed, **said}
        case asked.CompleteUpdate():
            return {"type": "complete_update", "update_id": command.update_id, "result": None}
        case asked.CompleteWorkflow():
            return {"type": "complete_workflow", "result": None}
        case asked.FailWorkflow():
            return {"type": "fail_workflow", "message": command.message}
        case asked.ContinueAsNew():
            told = {"workflow_type": command.workflow_type, "queue": QUEUE, "arguments": []}
            return {"type": "continue_as_new", **told}
        case _:
            raise AssertionError(f"no program does {command}")


def _retry(policy: RetryPolicy) -> Json:
    return {"max_attempts": policy.max_attempts, "backoff_seconds": list(policy.backoff_s)}


class ModelWorker:
    """Replays, decides and reports until it is told to stop; now and then it dies with a task in its hands."""

    def __init__(self, caller: Caller, name: str, dice: random.Random) -> None:
        self.name = name
        self.answers = 0
        self._caller = caller
        self._dice = dice
        self._requests = itertools.count(1)

    async def register(self) -> None:
        body = {"worker_id": self.name, "task_queue": QUEUE, "runtime": "python"}
        await self._caller.insist("POST", "/api/worker/register", as_bytes(body))

    async def work_forever(self, kind: str) -> None:
        while True:
            body = {
                "worker_id": self.name,
                "task_queue": QUEUE,
                "timeout_seconds": 1,
                "poll_request_id": f"{self.name}-{kind}-{next(self._requests)}",
            }
            _, answer = await self._caller.insist("POST", f"/api/worker/{kind}-tasks/poll", as_bytes(body))
            task = answer.get("task")
            if task is not None and self._dice.random() > 0.05:
                await (self._perform(task) if kind == "activity" else self._decide(task))
                self.answers += 1

    async def _perform(self, task: Json) -> None:
        lease = {"lease_owner": self.name, "activity_attempt_id": task["activity_attempt_id"]}
        if self._dice.random() < 0.2:
            await self._report("activity", task, "fail", lease | {"failure": {"message": "boom"}})
        else:
            await self._report("activity", task, "complete", lease | {"result": None})

    async def _decide(self, task: Json) -> None:
        lease = {"lease_owner": self.name, "workflow_task_attempt": task["workflow_task_attempt"]}
        told = next_commands(
            [_event(task, each) for each in task["history_events"]], task["workflow_update_id"]
        )
        if told:
            body = lease | {"commands": [on_the_wire(each) for each in told]}
            await self._report("workflow", task, "complete", body)
        else:
            nothing = {"message": "nothing new", "type": NOTHING_NEW}
            await self._report("workflow", task, "fail", lease | {"failure": nothing})

    async def _report(self, kind: str, task: Json, verb: str, body: Json) -> None:
        path = f"/api/worker/{kind}-tasks/{task['task_id']}/{verb}"
        status, answer = await self._caller.insist("POST", path, as_bytes(body))
        assert status in (200, 409), f"{path}: {status} {answer}"
        assert answer.get("reason") != "invalid_commands", answer


def _event(task: Json, event: Json) -> RecordedEvent:
    run_id = RunId(task["run_id"])
    return RecordedEvent(
        run_id, event["sequence"], event["event_type"], json.dumps(event["payload"]), 0, None
    )


# ── The run ─────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def at_work(callers: list[Caller], dice: random.Random) -> AsyncIterator[list[ModelWorker]]:
    workers = [ModelWorker(caller, f"w{number}", dice) for number, caller in enumerate(callers)]
    for worker in workers:
        await worker.register()
    tasks = [
        asyncio.create_task(worker.work_forever(kind))
        for worker in workers
        for kind in ("workflow", "activity")
    ]
    try:
        yield workers
        for task in tasks:
            assert not task.done() or task.exception() is None, task.exception()
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [each for each in ended if isinstance(each, AssertionError)]
        assert not failed, failed


async def test_random_programs_end_as_they_should_on_servers_that_are_killed(
    tmp_path: Path, postgres_database: str, dice: random.Random
) -> None:
    two = [Doomed(tmp_path, postgres_database, name=f"server-{number}") for number in range(2)]
    urls = [each.url for each in two]
    record = Record()
    callers = [Caller(urls[number % 2 :] + urls[: number % 2], record) for number in range(WORKERS + 1)]
    client = callers[0]
    store = await PostgresStore.open(postgres_database, LocalWakeups())

    async def open_runs() -> list[str]:
        return [sight.run.workflow_id for sight in (await run_laws.look(store)).open]

    async def tell(workflow_id: str) -> None:
        """A signal or an update; a run that has just closed refuses it."""
        path = f"/api/workflows/{workflow_id}/" + dice.choice(["signal/go", "signal/go", "update/add"])
        body = {"input": []} | ({"wait_for": "accepted"} if path.endswith("add") else {})
        await client.insist("POST", path, as_bytes(body), role="operator")

    async with serving(*two):
        async with at_work(callers[1:], dice) as workers:
            for number in range(PROGRAMS):
                body = {
                    "workflow_id": f"order-{number}",
                    "workflow_type": a_program(dice).name,
                    "task_queue": QUEUE,
                }
                start = await client.insist(
                    "POST", "/api/workflows", as_bytes(body), role="operator", key=f"{number}"
                )
                assert start[0] in (200, 201), start
            for round_ in range(KILLS):
                before = sum(worker.answers for worker in workers)
                wanted = before + dice.randrange(3, 15)
                with contextlib.suppress(AssertionError):
                    await until(
                        "some answers",
                        lambda wanted=wanted: sum(worker.answers for worker in workers) >= wanted,  # type: ignore[misc]
                        within_s=3,
                    )
                doomed = two[round_ % 2]
                if dice.random() < 0.5:
                    doomed.die_at(dice.choice(list(Moment)), dice.randrange(1, 6))
                for workflow_id in await open_runs():
                    await tell(workflow_id)
                if doomed.live.process is not None and doomed.live.process.poll() is None:
                    await doomed.kill()
                await doomed.start()
                run_laws.check(await run_laws.look(store))

            async def all_closed() -> bool:
                for workflow_id in await open_runs():
                    await tell(workflow_id)
                return not await open_runs()

            await until("every program ends", all_closed, within_s=90)
            await until("letters are delivered", lambda: _no_letters(store))
    world = await run_laws.look(store)
    run_laws.check(world)
    assert {f"order-{number}" for number in range(PROGRAMS)} <= {
        each.run.workflow_id for each in world.sights
    }
    assert record.server_errors == []
    for caller in callers:
        await caller.close()
    await store.close()


async def _no_letters(store: PostgresStore) -> bool:
    return not (await run_laws.look(store)).letters
