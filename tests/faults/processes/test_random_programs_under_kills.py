"""Random programs on servers that are killed: the invariants of runs hold, and every run closes.

The programs and the worker that replays them are those of the engine's tests; here they speak HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.core import payload_codec
from penstock.core.history import commands as asked
from penstock.core.model import ClosePolicy, RecordedEvent, RetrySchedule, RunId
from penstock.stores.group_commit import CommitPoint
from penstock.stores.postgres.store import PostgresStore
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import run_invariants
from tests.engine.support.programs import (
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
from tests.faults.deadlines import DidNotHappen, until
from tests.faults.load import NOTHING_NEW, Caller, as_bytes
from tests.faults.observations import Record
from tests.faults.servers import Doomed, serving

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

QUEUE = "programs"
PROGRAMS, WORKERS, KILLS = 4, 2, 2
ROUNDS_MAX = 200
"""Whoever must be told more often than this goes in circles."""
Json = dict[str, Any]


@pytest.fixture
def dice() -> random.Random:
    """A new seed each time; it is printed, so that a failure can be looked at again."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


# ── Programs ────────────────────────────────────────────────────────────────────────────────────────────


def a_program(dice: random.Random, depth: int = 1) -> Program:
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
    retry = RetrySchedule(dice.randrange(1, 4), True, (0, 1))
    if kind == "act":
        return Act(retry)
    if kind == "sleep":
        return Sleep(dice.choice([0, 1]))
    return Kid(a_program(dice, depth - 1), dice.choice(list(ClosePolicy)), retry)


# ── A worker that speaks HTTP ───────────────────────────────────────────────────────────────────────────


def on_the_wire(command: asked.Command) -> Json:
    """A command as a worker sends it."""
    return _SAID[type(command)](command) | dict(getattr(command, "extra", {}))


def _step(kind: str, **told: Any) -> Json:
    return {"type": kind, **told}


def _activity(command: asked.ScheduleActivity) -> Json:
    retry = _retry(command.retry)
    return _step("schedule_activity", activity_type=command.activity_type, arguments=[], retry_policy=retry)


def _child(command: asked.StartChild) -> Json:
    told = {"parent_close_policy": command.policy.value, "retry_policy": _retry(command.retry)}
    return _step("start_child_workflow", workflow_type=command.workflow_type, arguments=[], **told)


def _condition(command: asked.OpenConditionWait) -> Json:
    return _step(
        "open_condition_wait",
        condition_key=command.key,
        condition_definition_fingerprint=command.fingerprint,
        timeout_seconds=command.timeout_s,
    )


def _local(command: asked.RecordLocalActivity) -> Json:
    ended = {"result": None} if command.outcome == "completed" else {"message": "as programmed"}
    told = {"activity_type": command.activity_type, "outcome": command.outcome, "execution_mode": "local"}
    return _step("record_local_activity", arguments=[], **told, **ended)


def _marker(command: asked.RecordVersionMarker) -> Json:
    numbers = {"version": command.version, "min_supported": 0, "max_supported": 2}
    return _step("record_version_marker", change_id=command.change_id, **numbers)


def _memo(command: asked.UpsertMemo) -> Json:
    return _step(
        "upsert_memo", entries={"codec": "avro", "blob": payload_codec.encode(dict(command.entries))}
    )


def _give_up(command: asked.CancelSelectionOperation) -> Json:
    said = {"operation_kind": "timer", "operation_identity": "whatever"}
    return _step("cancel_selection_operation", **command.echoed, **said)


_SAID: dict[type, Callable[[Any], Json]] = {
    asked.ScheduleActivity: _activity,
    asked.StartTimer: lambda command: _step("start_timer", delay_seconds=command.delay_s),
    asked.StartChild: _child,
    asked.OpenConditionWait: _condition,
    asked.RecordLocalActivity: _local,
    asked.RecordSideEffect: lambda _: _step("record_side_effect", result=payload_codec.encode(1)),
    asked.RecordVersionMarker: _marker,
    asked.UpsertSearchAttributes: lambda _: _step("upsert_search_attributes", attributes={}),
    asked.UpsertMemo: _memo,
    asked.CancelSelectionOperation: _give_up,
    asked.CompleteUpdate: lambda command: _step("complete_update", update_id=command.update_id, result=None),
    asked.CompleteWorkflow: lambda _: _step("complete_workflow", result=None),
    asked.FailWorkflow: lambda command: _step("fail_workflow", message=command.message),
    asked.ContinueAsNew: lambda command: _step(
        "continue_as_new", workflow_type=command.workflow_type, queue=QUEUE, arguments=[]
    ),
}


def _retry(policy: RetrySchedule) -> Json:
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


class Trial:
    """Two servers on one database, workers that never give up, and a caller who tells runs something."""

    def __init__(self, servers: Sequence[Doomed], dice: random.Random) -> None:
        urls = [each.url for each in servers]
        self.record = Record()
        self.callers = [
            Caller(urls[number % 2 :] + urls[: number % 2], self.record) for number in range(WORKERS + 1)
        ]
        self._client = self.callers[0]
        self._dice = dice
        self._workers = [
            ModelWorker(caller, f"w{number}", dice) for number, caller in enumerate(self.callers[1:], 1)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Trial:
        for worker in self._workers:
            await worker.register()
            for kind in ("workflow", "activity"):
                self._tasks.append(asyncio.create_task(worker.work_forever(kind)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for caller in self.callers:
            await caller.close()
        assert [each for each in ended if isinstance(each, Exception)] == []

    async def start(self, name: str, program: Program) -> None:
        body = {"workflow_id": name, "workflow_type": program.name, "task_queue": QUEUE}
        status, answer = await self._client.insist(
            "POST", "/api/workflows", as_bytes(body), role="operator", key=name
        )
        assert status in (200, 201), answer

    async def some_answers(self, more: int) -> None:
        """Until workers have got so many further answers, or all wait for something else."""
        wanted = sum(worker.answers for worker in self._workers) + more
        with contextlib.suppress(DidNotHappen):
            await until("answers", lambda: self._answers() >= wanted, within_s=2)

    def _answers(self) -> int:
        return sum(worker.answers for worker in self._workers)

    async def open_runs(self) -> list[str]:
        path = "/api/workflows?status=running&page_size=200"
        _, answer = await self._client.insist("GET", path, role="operator")
        return [each["workflow_id"] for each in answer["workflows"]]

    async def tell_everybody(self) -> None:
        """A signal or an update to each open run; one that has just closed refuses it."""
        for workflow_id in await self.open_runs():
            path = f"/api/workflows/{workflow_id}/" + self._dice.choice(["signal/go", "update/add"])
            body: Json = {"input": []} | ({"wait_for": "accepted"} if path.endswith("add") else {})
            await self._client.insist("POST", path, as_bytes(body), role="operator")

    async def everything_ends(self) -> None:
        for _ in range(ROUNDS_MAX):
            assert not any(task.done() for task in self._tasks), "a worker gave up"
            await self.tell_everybody()
            with contextlib.suppress(DidNotHappen):
                await until("all have closed", self._is_over, within_s=1)
                return
        raise AssertionError(f"still open: {await self.open_runs()}")

    async def _is_over(self) -> bool:
        return not await self.open_runs()


async def killed(doomed: Doomed, trial: Trial, dice: random.Random) -> None:
    """Die at a commit, or anywhere, while callers speak; then come back."""
    if dice.random() < 0.5:
        doomed.die_at(dice.choice(list(CommitPoint)), dice.randrange(1, 6))
    await trial.tell_everybody()
    process = doomed.live.process
    if process is not None and process.poll() is None:
        await doomed.kill()
    await doomed.start()


async def test_random_programs_end_as_they_should_on_servers_that_are_killed(
    tmp_path: Path, postgres_database: str, dice: random.Random
) -> None:
    two = [Doomed(tmp_path, postgres_database, name=f"server-{number}") for number in range(2)]
    store = await PostgresStore.open(postgres_database, LocalWakeups())

    async def no_letters() -> bool:
        return not await store.read(lambda tx: tx.outbox.waiting(1))

    try:
        async with serving(*two), Trial(two, dice) as trial:
            for number in range(PROGRAMS):
                await trial.start(f"order-{number}", a_program(dice))
            for round_ in range(KILLS):
                await trial.some_answers(dice.randrange(3, 15))
                await killed(two[round_ % 2], trial, dice)
                run_invariants.check(await run_invariants.load(store))
            await trial.everything_ends()
            await until("letters are delivered", no_letters)
        world = await run_invariants.load(store)
    finally:
        await store.close()
    run_invariants.check(world)
    assert world.open == []
    names = {each.run.workflow_id for each in world.sights}
    assert {f"order-{number}" for number in range(PROGRAMS)} <= names
    assert trial.record.server_errors == []
