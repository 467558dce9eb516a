"""Servers killed (-9) between and during claims keep the order, the rates and the limits."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.stores.group_commit import CommitPoint
from tests.faults.deadlines import until
from tests.faults.load import REPORTED, Caller, Lost, as_bytes
from tests.faults.observations import Record
from tests.faults.servers import Doomed, serving
from tests.support.dispatch_log import counts, keys, most_over_rate, names, of, standing
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.faults

Json = dict[str, Any]
LONG_LEASE_S = 60
POLL = "/api/worker/activity-tasks/poll"


@pytest.fixture
def dice() -> random.Random:
    """A new seed each time; it is printed, so that a failure can be looked at again."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture(params=["sqlite", "postgres-3"])
def ctx(request: pytest.FixtureRequest, tmp_path: Path) -> list[Doomed]:
    """One server on SQLite, or three on one PostgreSQL; none is started yet."""
    store, _, number = str(request.param).partition("-")
    url = str(request.getfixturevalue(f"{store}_database"))
    return [Doomed(tmp_path, url, name=f"server-{n}", lease_s=LONG_LEASE_S) for n in range(int(number or 1))]


class Crew:
    """An operator, and workers; each request goes to the next server, and on to another until it is answered."""

    def __init__(self, servers: Sequence[Doomed]) -> None:
        self._record = Record()
        self._callers = [Caller([each.url], self._record) for each in servers]
        self._turns = itertools.count()
        self._claims = itertools.count(1)

    async def __aenter__(self) -> Crew:
        return self

    async def __aexit__(self, *_: object) -> None:
        for caller in self._callers:
            await caller.close()

    async def once(self, method: str, path: str, body: Json | None, role: str) -> tuple[int, Json]:
        caller = self._callers[next(self._turns) % len(self._callers)]
        return await caller.once(method, path, None if body is None else as_bytes(body), role=role)

    async def ask(self, method: str, path: str, body: Json | None = None, role: str = "operator") -> Json:
        """Send the same until there is an answer that is not "try again"."""

        async def answered() -> Json | None:
            with contextlib.suppress(Lost):
                status, answer = await self.once(method, path, body, role)
                assert status < 300 or status in REPORTED, f"{status} {answer}"
                return answer if status < 300 else None
            return None

        return await until(f"an answer to {method} {path}", answered, within_s=PATIENCE_S)

    async def queue_up(self, queue: str, standings: Sequence[Json], at_once: int = 100) -> None:
        items = [
            {"activity_id": f"{queue}.{number:05}", "activity_type": "t", "task_queue": queue} | each
            for number, each in enumerate(standings)
        ]
        for start in range(0, len(items), at_once):
            some = {"items": items[start : start + at_once]}
            told = await self.ask("POST", "/api/activities/batch", some)
            assert told["accepted"] == len(some["items"]), told

    async def config(self, queue: str, **fields: Any) -> None:
        body = {"task_queue_type": "activity"} | fields
        await self.ask("PATCH", f"/api/task-queues/{queue}/config", body)

    async def line(self, queue: str) -> Json:
        shown = (await self.ask("GET", f"/api/task-queues/{queue}"))["stats"]["activity_tasks"]
        assert isinstance(shown, dict)
        return shown

    async def worker(self, queue: str, name: str = "w1") -> Claimer:
        body = {
            "worker_id": name,
            "task_queue": queue,
            "runtime": "python",
            "max_concurrent_activity_tasks": 1_000,
        }
        await self.ask("POST", "/api/worker/register", body, role="worker")
        return Claimer(self, queue, name)

    def next_claim(self) -> str:
        return f"claim-{next(self._claims)}"


class Claimer:
    """A worker whose claims are sent again with the same request id until they are answered."""

    def __init__(self, crew: Crew, queue: str, name: str) -> None:
        self._crew = crew
        self._queue = queue
        self._name = name

    def _poll(self, most: int, timeout: int) -> Json:
        return {
            "worker_id": self._name,
            "task_queue": self._queue,
            "timeout_seconds": timeout,
            "max_tasks": most,
        }

    async def claim(self, most: int = 1, timeout: int = 5) -> list[Json]:
        body = self._poll(most, timeout) | {"poll_request_id": self._crew.next_claim()}
        answer = await self._crew.ask("POST", POLL, body, role="worker")
        tasks = answer["tasks"]
        assert isinstance(tasks, list)
        return tasks

    async def claim_in_vain(self) -> None:
        """A claim whose server dies of it, and which nobody asks about again."""
        with pytest.raises(Lost):
            await self._crew.once("POST", POLL, self._poll(1, 5), "worker")

    async def drain(self, count: int, most: int = 1) -> list[Json]:
        tasks: list[Json] = []
        while len(tasks) < count:
            tasks += await self.claim(min(most, count - len(tasks)))
        return tasks

    async def finish(self, task: Json) -> None:
        body = {
            "lease_owner": self._name,
            "activity_attempt_id": task["activity_attempt_id"],
            "result": None,
        }
        path = f"/api/worker/activity-tasks/{task['task_id']}/complete"
        await self._crew.ask("POST", path, body, role="worker")


class Storm:
    """Kills servers one after the other, in the middle of their work or between, and starts them again.

    The work waits while a server starts, so that it does not come to its end before the storm does.
    """

    def __init__(self, servers: Sequence[Doomed], dice: random.Random) -> None:
        self._servers = servers
        self._dice = dice
        self.calm = asyncio.Event()
        self.calm.set()

    async def rage(self, progress: Callable[[], int], marks: Sequence[int]) -> None:
        """Strike each time the work has come so far."""

        async def come_to(mark: int) -> None:
            await until(f"{mark} are done", lambda: progress() >= mark)

        for mark in marks:
            await come_to(mark)
            victim = self._dice.choice(self._servers)
            await self._strike(victim)
            if len(self._servers) > 1:
                await come_to(progress() + 3)
            self.calm.clear()
            await victim.start()
            self.calm.set()

    async def _strike(self, victim: Doomed) -> None:
        if self._dice.random() < 0.3:
            await victim.kill()
        else:
            victim.die_at(self._dice.choice(list(CommitPoint)), self._dice.randrange(1, 3))
            await victim.died()


MIXED: list[Json] = [
    {
        "fairness_key": f"key-{number % 5}",
        "fairness_weight": 1 + number % 5,
        "priority_key": 2 + (number % 4 == 3),
    }
    for number in range(60)
]
RULES: dict[str, Json] = {
    "plain": {},
    "limited": {
        "set_fairness_weight_overrides": {"key-1": 4},
        "aging_wait_seconds": 0,
        "aging_every": 5,
        "fairness_key_max_running_default": 1000,
    },
    "by-running": {"fairness_counts": "running"},
    "in-turn": {"fairness": "off"},
}


async def test_the_order_of_a_run_that_is_killed_again_and_again_is_that_of_one_that_is_not(
    ctx: list[Doomed], dice: random.Random
):
    async with serving(*ctx), Crew(ctx) as crew:
        for name, rules in RULES.items():
            for queue in (f"calm-{name}", f"stormy-{name}"):
                await crew.config(queue, **rules)
                await crew.queue_up(queue, MIXED, at_once=1)
        calm = {name: await (await crew.worker(f"calm-{name}")).drain(40) for name in RULES}
        stormy: dict[str, list[Json]] = {name: [] for name in RULES}
        marks, storm = (5, 35, 65, 95, 125), Storm(ctx, dice)
        raging = asyncio.create_task(storm.rage(lambda: sum(map(len, stormy.values())), marks))
        for name, tasks in stormy.items():
            worker = await crew.worker(f"stormy-{name}")
            while len(tasks) < 40:
                await storm.calm.wait()
                tasks += await worker.claim()
        await raging
    for name in RULES:
        assert numbers(stormy[name]) == numbers(calm[name]), name
    assert sum(each.kills for each in ctx) == len(marks)


def numbers(tasks: Sequence[Json]) -> list[int]:
    """Which of a queue's tasks were handed out, one after the other."""
    return [int(name.partition(".")[2]) for name in names(tasks)]


async def test_rates_hold_across_kills(ctx: list[Doomed], dice: random.Random):
    async with serving(*ctx), Crew(ctx) as crew:
        limits: Json = {"queue_rps_limit": 40, "queue_rps_burst_seconds": 0.25}
        await crew.config("q", **limits, keys={"slow": {"rps_limit": 10}})
        await crew.queue_up("q", standing("slow", 40) + standing("fast", 120))
        worker = await crew.worker("q")
        tasks: list[Json] = []
        storm = Storm(ctx, dice)
        raging = asyncio.create_task(storm.rage(lambda: len(tasks), (10, 30, 60)))
        while len(tasks) < 120:
            await storm.calm.wait()
            tasks += await worker.claim(5)
        await raging
    assert len(set(names(tasks))) == len(tasks)
    assert most_over_rate(tasks, 40, burst=10) <= 0
    assert most_over_rate(of("slow", tasks), 10, burst=10) <= 0


async def test_six_claimers_at_once_are_as_fair_as_one_while_servers_are_killed(
    ctx: list[Doomed], dice: random.Random
):
    equal = [f"key-{number:02}" for number in range(100)]
    async with serving(*ctx), Crew(ctx) as crew:
        await crew.queue_up("q", [{"fairness_key": key} for key in equal * 20])
        taken: list[Json] = []
        storm = Storm(ctx, dice)

        async def claim_three_hundred(worker: Claimer) -> None:
            mine: list[Json] = []
            while len(mine) < 300:
                await storm.calm.wait()
                some = await worker.claim(min(20, 300 - len(mine)))
                mine += some
                taken.extend(some)

        workers = [await crew.worker("q", f"w{number}") for number in range(6)]
        raging = asyncio.create_task(storm.rage(lambda: len(taken), (200, 500, 800)))
        await asyncio.gather(*map(claim_three_hundred, workers))
        await raging
        left = (await crew.line("q"))["ready_count"]
    assert len(set(names(taken))) == len(taken) == 1800
    assert set(counts(taken).values()) == {18}
    assert left == 200


class Running:
    """What workers hold for sure: from the answer that brought a task until they send its report."""

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self.most_of_a_key = self.most = self.done = 0

    def begins(self, tasks: Sequence[Json]) -> None:
        self._now += counts(tasks)
        self.most = max(self.most, self._now.total())
        self.most_of_a_key = max(self.most_of_a_key, *self._now.values(), 0)

    def ends(self, task: Json) -> None:
        self._now -= counts([task])
        self.done += 1


async def test_running_limits_hold_while_servers_are_killed_and_no_slot_is_lost(
    ctx: list[Doomed], dice: random.Random
):
    async with serving(*ctx), Crew(ctx) as crew:
        await crew.config("q", max_running=5, fairness_key_max_running_default=2)
        await crew.queue_up("q", [{"fairness_key": f"key-{number % 10}"} for number in range(150)])
        running, storm = Running(), Storm(ctx, dice)

        async def work(worker: Claimer) -> None:
            while running.done < 130:
                await storm.calm.wait()
                tasks = await worker.claim(3, timeout=1)
                running.begins(tasks)
                for task in tasks:
                    running.ends(task)
                    await worker.finish(task)

        workers = [await crew.worker("q", f"w{number}") for number in range(4)]
        raging = asyncio.create_task(storm.rage(lambda: running.done, (10, 40, 70)))
        await asyncio.gather(*map(work, workers))
        await raging
        rest = await workers[0].claim(100)
        assert len(rest) == 5
        assert max(counts(rest).values()) <= 2
        assert await workers[0].claim(100, timeout=0) == []
    assert running.most <= 5
    assert running.most_of_a_key <= 2


@pytest.fixture
def forgetful(tmp_path: Path, database_url: str) -> Doomed:
    """A server whose leases last two seconds."""
    return Doomed(tmp_path, database_url)


async def test_a_task_whose_claimer_was_killed_is_the_first_of_its_key_again_and_billed_once_per_lease(
    forgetful: Doomed,
):
    async with serving(forgetful), Crew([forgetful]) as crew:
        for queue in ("calm", "stormy"):
            await crew.queue_up(
                queue, [{"fairness_key": "ab"[number % 2]} for number in range(16)], at_once=1
            )
        calm = keys(await (await crew.worker("calm")).drain(16))
        worker = await crew.worker("stormy")
        forgetful.die_at(CommitPoint.AFTER_COMMIT, 2)
        await worker.claim_in_vain()
        await forgetful.died()
        await forgetful.start()
        tasks = []
        for _ in range(3):
            tasks += await worker.claim()
            await worker.finish(tasks[-1])

        async def is_back() -> bool:
            return bool((await crew.line("stormy"))["ready_count"] == 13)

        await until("the lost task waits again", is_back)
        tasks += await worker.drain(10)
    assert keys(tasks) == calm[1:14]
    lost = [task for task in tasks if task["attempt_number"] == 2]
    assert [(each["fairness_key"], each["workflow_id"]) for each in lost] == [(calm[0], "stormy.00000")]


async def test_a_lease_that_was_lost_with_its_server_counts_until_it_ends(forgetful: Doomed):
    async with serving(forgetful), Crew([forgetful]) as crew:
        await crew.config("q", keys={"a": {"max_running": 1}})
        await crew.queue_up("q", standing("a", 3) + standing("b", 1))
        worker = await crew.worker("q")
        forgetful.die_at(CommitPoint.AFTER_COMMIT, 2)
        await worker.claim_in_vain()
        await forgetful.died()
        await forgetful.start()
        tasks: list[Json] = []
        while len(tasks) < 4:
            some = await worker.claim(3)
            assert counts(some)["a"] <= 1
            for task in some:
                await worker.finish(task)
            tasks += some
    assert sorted(task["attempt_number"] for task in tasks) == [1, 1, 1, 2]
    assert counts(tasks) == {"a": 3, "b": 1}
