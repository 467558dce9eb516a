"""Programs about patterns: polling, timers, windows, locks, approvals, compensation, and programs as data."""

from __future__ import annotations

# ruff: noqa: PT017 - workflow code has no pytest
import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from penstock import RetryPolicy, WorkflowIDConflictPolicy, activity, workflow
from penstock.failures import ActivityError, ApplicationError
from penstock.worker import Worker
from tests.sdk.programs.program import LONG, SOON, Home, program


class Service:
    """Is ready at the third call for a key."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def ask(self, key: str) -> bool:
        self.calls[key] = self.calls.get(key, 0) + 1
        return self.calls[key] >= 3


SERVICE = Service()


@activity.defn
async def asks_once() -> str:
    if not SERVICE.ask(f"once {activity.info().workflow_run_id}"):
        raise ApplicationError("not ready", type="NotReady")
    return f"ready at attempt {activity.info().attempt}"


@activity.defn
async def asks_until_ready() -> str:
    while not SERVICE.ask(f"loop {activity.info().workflow_run_id}"):
        activity.heartbeat("asked")
        await asyncio.sleep(0.01)
    return "ready"


@activity.defn
async def asks_for_parent(key: str) -> bool:
    return SERVICE.ask(key)


@workflow.defn
class PollsRarely:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            asks_once,
            start_to_close_timeout=LONG,
            retry_policy=RetryPolicy(initial_interval=SOON, backoff_coefficient=1.0),
        )


@workflow.defn
class PollsOften:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_activity(
            asks_until_ready, start_to_close_timeout=LONG, heartbeat_timeout=timedelta(seconds=20)
        )


@workflow.defn
class PollingChild:
    """Asks twice, and continues as new, so that its history stays short."""

    @workflow.run
    async def run(self, key: str) -> str:
        for _ in range(2):
            if await workflow.execute_activity(asks_for_parent, key, start_to_close_timeout=LONG):
                return "ready in the end"
            await workflow.sleep(0.01)
        return workflow.continue_as_new(key)


@workflow.defn
class PollsByChild:
    @workflow.run
    async def run(self) -> str:
        return await workflow.execute_child_workflow(PollingChild.run, workflow.info().run_id)


@program(workflows=[PollsRarely], activities=[asks_once])
async def polling_by_retries(home: Home) -> None:
    assert await home.client.execute_workflow(PollsRarely.run, **home.how()) == "ready at attempt 3"


@program(workflows=[PollsOften], activities=[asks_until_ready])
async def polling_in_an_activity(home: Home) -> None:
    assert await home.client.execute_workflow(PollsOften.run, **home.how()) == "ready"


@program(workflows=[PollsByChild, PollingChild], activities=[asks_for_parent])
async def polling_by_a_child_that_continues_as_new(home: Home) -> None:
    assert await home.client.execute_workflow(PollsByChild.run, **home.how()) == "ready in the end"


@workflow.defn
class UpdatableTimer:
    def __init__(self) -> None:
        self.wake_at = 0.0
        self.changed = False

    @workflow.run
    async def run(self, wake_at: float) -> int:
        self.wake_at, rounds = wake_at, 0
        while workflow.time() < self.wake_at:
            rounds += 1
            self.changed = False
            try:
                await workflow.wait_condition(
                    lambda: self.changed, timeout=timedelta(seconds=self.wake_at - workflow.time())
                )
            except TimeoutError:
                break
        return rounds

    @workflow.signal
    def wake(self, at: float) -> None:
        self.wake_at, self.changed = at, True

    @workflow.query
    def wakes_at(self) -> float:
        return self.wake_at


@program(workflows=[UpdatableTimer])
async def a_timer_whose_end_moves(home: Home) -> None:
    handle = await home.client.start_workflow(UpdatableTimer.run, 1.9e9, **home.how())
    assert await handle.query(UpdatableTimer.wakes_at) == 1.9e9
    await handle.signal(UpdatableTimer.wake, 2.0e9)
    assert await handle.query(UpdatableTimer.wakes_at) == 2.0e9
    await handle.signal(UpdatableTimer.wake, 1.0)
    assert await handle.result() in (1, 2), "both changes may come with one task"


@dataclass
class Window:
    total: int
    size: int
    begun: int = 0
    ended: list[int] = field(default_factory=list)


@workflow.defn
class Processor:
    @workflow.run
    async def run(self, number: int, parent_id: str) -> None:
        await workflow.get_external_workflow_handle_for(SlidingWindow.run, parent_id).signal(
            SlidingWindow.report, number
        )


@workflow.defn
class SlidingWindow:
    """Never has more than `size` children, which outlive its runs."""

    @workflow.init
    def __init__(self, window: Window) -> None:
        self.window = window

    @workflow.run
    async def run(self, window: Window) -> list[int]:
        own_id, begun_here = workflow.info().workflow_id, 0
        while window.begun < window.total:
            await workflow.wait_condition(lambda: window.begun - len(window.ended) < window.size)
            await workflow.start_child_workflow(
                Processor.run,
                args=[window.begun, own_id],
                id=f"{own_id}-{window.begun}",
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            )
            window.begun += 1
            begun_here += 1
            if begun_here == 3:
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(window)
        await workflow.wait_condition(lambda: len(window.ended) == window.total)
        return sorted(window.ended)

    @workflow.signal
    def report(self, number: int) -> None:
        if number not in self.window.ended:
            self.window.ended.append(number)


@workflow.defn
class Batches:
    """Splits its work over sliding windows, which are its children."""

    @workflow.run
    async def run(self, parts: int) -> list[int]:
        own = workflow.info().workflow_id
        found = await asyncio.gather(
            *(
                workflow.execute_child_workflow(SlidingWindow.run, Window(2 + part, 2), id=f"{own}-{part}")
                for part in range(parts)
            )
        )
        return [len(each) for each in found]


@program(workflows=[SlidingWindow, Processor])
async def a_sliding_window_of_children(home: Home) -> None:
    found = await home.client.execute_workflow(SlidingWindow.run, Window(total=5, size=2), **home.how())
    assert found == [0, 1, 2, 3, 4]


@program(workflows=[Batches])
async def a_batch_of_sliding_windows(home: Home) -> None:
    assert await home.client.execute_workflow(Batches.run, 2, **home.how()) == [2, 3]


@activity.defn
async def book(what: str) -> str:
    if what == "hotel":
        raise ApplicationError("no rooms", type="Full", non_retryable=True)
    return f"{what} booked"


@activity.defn
async def undo(what: str) -> str:
    return f"{what} undone"


@workflow.defn
class Trip:
    """A saga: what succeeded is undone in reverse order when a later step fails."""

    @workflow.run
    async def run(self) -> list[str]:
        log: list[str] = []
        compensations: list[str] = []
        try:
            for what in ("car", "flight", "hotel"):
                compensations.append(what)
                log.append(await workflow.execute_activity(book, what, start_to_close_timeout=LONG))
        except ActivityError as error:
            assert isinstance(error.cause, ApplicationError)
            log.append(error.cause.message)
            for what in reversed(compensations):
                log.append(await workflow.execute_activity(undo, what, start_to_close_timeout=LONG))
        return log


@program(workflows=[Trip], activities=[book, undo])
async def a_saga(home: Home) -> None:
    assert await home.client.execute_workflow(Trip.run, **home.how()) == [
        *("car booked", "flight booked", "no rooms"),
        *("hotel undone", "flight undone", "car undone"),
    ]


@activity.defn
async def ask_for_lock(lock: str, requester: str) -> None:
    await activity.client().start_workflow(
        Mutex.run,
        id=lock,
        task_queue=activity.info().task_queue,
        start_signal=Mutex.request,
        start_signal_args=[requester],
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )


@workflow.defn
class Mutex:
    """Gives the lock to one requester at a time, and ends when nobody wants it."""

    def __init__(self) -> None:
        self.requests: deque[str] = deque()
        self.holder: str | None = None

    @workflow.run
    async def run(self) -> int:
        served = 0
        while self.requests or not served:
            await workflow.wait_condition(lambda: bool(self.requests))
            self.holder = self.requests.popleft()
            await workflow.get_external_workflow_handle(self.holder).signal("acquired")
            await workflow.wait_condition(lambda: self.holder is None)
            served += 1
        return served

    @workflow.signal
    def request(self, requester: str) -> None:
        self.requests.append(requester)

    @workflow.signal
    def release(self, requester: str) -> None:
        if self.holder == requester:
            self.holder = None


INSIDE: dict[str, int] = {}


@activity.defn
async def critical(lock: str) -> int:
    INSIDE[lock] = INSIDE.get(lock, 0) + 1
    await asyncio.sleep(0.01)
    found, INSIDE[lock] = INSIDE[lock], INSIDE[lock] - 1
    return found


@workflow.defn
class UsesLock:
    def __init__(self) -> None:
        self.has_lock = False

    @workflow.run
    async def run(self, lock: str) -> int:
        own = workflow.info().workflow_id
        await workflow.execute_activity(ask_for_lock, args=[lock, own], start_to_close_timeout=LONG)
        await workflow.wait_condition(lambda: self.has_lock)
        inside = await workflow.execute_activity(critical, lock, start_to_close_timeout=LONG)
        await workflow.get_external_workflow_handle(lock).signal(Mutex.release, own)
        return inside

    @workflow.signal
    def acquired(self) -> None:
        self.has_lock = True


@program(workflows=[Mutex, UsesLock], activities=[ask_for_lock, critical])
async def a_mutex_between_workflows(home: Home) -> None:
    lock = f"{home.name}-lock-{home.scene.namespace}"
    calls = [home.client.execute_workflow(UsesLock.run, lock, **home.how(f"-{n}")) for n in range(3)]
    assert await asyncio.gather(*calls) == [1, 1, 1]
    await home.client.get_workflow_handle(lock).result()


@workflow.defn
class Pool:
    """Lends named resources to callers of an update, until they give them back."""

    def __init__(self) -> None:
        self.free = ["r1", "r2"]
        self.lent: list[str] = []
        self.is_over = False

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: self.is_over and workflow.all_handlers_finished())
        return sorted(self.free)

    @workflow.update
    async def borrow(self) -> str:
        await workflow.wait_condition(lambda: bool(self.free))
        return self.free.pop(0)

    @workflow.update
    def give_back(self, name: str) -> int:
        self.free.append(name)
        return len(self.free)

    @workflow.signal
    def end(self) -> None:
        self.is_over = True


@program(workflows=[Pool])
async def a_resource_pool(home: Home) -> None:
    handle = await home.client.start_workflow(Pool.run, **home.how())
    first, second = [await handle.execute_update(Pool.borrow) for _ in range(2)]
    waiting = asyncio.create_task(handle.execute_update(Pool.borrow))
    await handle.execute_update(Pool.give_back, first)
    assert await waiting == first
    for name in (first, second):
        await handle.execute_update(Pool.give_back, name)
    await handle.signal(Pool.end)
    assert await handle.result() == ["r1", "r2"]


@workflow.defn
class Expense:
    def __init__(self) -> None:
        self.decision: str | None = None

    @workflow.run
    async def run(self, seconds: float) -> str:
        try:
            await workflow.wait_condition(
                lambda: self.decision is not None, timeout=timedelta(seconds=seconds)
            )
        except TimeoutError:
            return "escalated"
        if self.decision == "approve":
            return await workflow.execute_activity(book, "payment", start_to_close_timeout=LONG)
        return "rejected"

    @workflow.update
    def decide(self, decision: str) -> str:
        self.decision = decision
        return workflow.info().workflow_id

    @decide.validator
    def undecided(self, decision: str) -> None:
        if self.decision is not None:
            raise ApplicationError("already decided", type="Decided")


@program(workflows=[Expense])
async def an_expense_approval(home: Home) -> None:
    for decision, outcome in (("approve", "payment booked"), ("reject", "rejected")):
        handle = await home.client.start_workflow(Expense.run, 60, **home.how(f"-{decision}"))
        assert await handle.execute_update(Expense.decide, decision) == handle.id
        assert await handle.result() == outcome
    assert await home.client.execute_workflow(Expense.run, 0.02, **home.how("-late")) == "escalated"


@dataclass
class Step:
    kind: str
    name: str = ""
    steps: list[Step] = field(default_factory=list)


@activity.defn
async def perform(name: str) -> str:
    return name.upper()


@workflow.defn
class Interpreter:
    """Runs a program that is data: sequences, parallel branches and activities."""

    @workflow.run
    async def run(self, step: Step) -> list[str]:
        return await self.perform(step)

    async def perform(self, step: Step) -> list[str]:
        kinds: dict[str, Callable[[Step], Awaitable[list[str]]]] = {
            "activity": self.call,
            "sequence": self.sequence,
            "parallel": self.parallel,
        }
        return await kinds[step.kind](step)

    async def call(self, step: Step) -> list[str]:
        return [await workflow.execute_activity(perform, step.name, start_to_close_timeout=LONG)]

    async def sequence(self, step: Step) -> list[str]:
        return [word for each in step.steps for word in await self.perform(each)]

    async def parallel(self, step: Step) -> list[str]:
        parts = await asyncio.gather(*(self.perform(each) for each in step.steps))
        return [word for part in parts for word in part]


@program(workflows=[Interpreter], activities=[perform])
async def a_program_that_is_data(home: Home) -> None:
    call = [Step("activity", name) for name in "abcd"]
    whole = Step(
        "sequence", steps=[call[0], Step("parallel", steps=[call[1], Step("sequence", steps=call[2:])])]
    )
    assert await home.client.execute_workflow(Interpreter.run, whole, **home.how()) == ["A", "B", "C", "D"]


@workflow.defn
class Subscription:
    """Bills by period until it is cancelled, continues as new, and says goodbye."""

    @workflow.run
    async def run(self, periods: int, billed: int) -> str:
        try:
            await workflow.sleep(0.01 if billed < periods else 3600)
        except asyncio.CancelledError:
            return await asyncio.shield(
                workflow.execute_activity(perform, f"goodbye after {billed}", start_to_close_timeout=LONG)
            )
        await workflow.execute_activity(perform, "bill", start_to_close_timeout=LONG)
        return workflow.continue_as_new(args=[periods, billed + 1])

    @workflow.query
    def alive(self) -> bool:
        return True


@program(workflows=[Subscription])
async def a_subscription_that_is_cancelled(home: Home) -> None:
    handle = await home.client.start_workflow(Subscription.run, args=[0, 0], **home.how())
    assert await handle.query(Subscription.alive)
    await handle.cancel()
    assert await handle.result() == "GOODBYE AFTER 0"


@activity.defn
async def own_queue() -> str:
    return OWN_QUEUE


@activity.defn
async def download() -> str:
    return f"downloaded on {activity.info().task_queue}"


OWN_QUEUE = "only-this-worker"


@workflow.defn
class StaysOnOneWorker:
    """Asks which worker took the first step, and sends the others to that one."""

    @workflow.run
    async def run(self) -> list[str]:
        queue = await workflow.execute_activity(own_queue, start_to_close_timeout=LONG)
        options: Any = {"task_queue": queue, "start_to_close_timeout": LONG}
        return [await workflow.execute_activity(download, **options) for _ in range(2)]


@program(workflows=[StaysOnOneWorker], activities=[own_queue])
async def a_queue_for_one_worker(home: Home) -> None:
    async with Worker(home.client, task_queue=OWN_QUEUE, activities=[download]):
        found = await home.client.execute_workflow(StaysOnOneWorker.run, **home.how())
    assert found == [f"downloaded on {OWN_QUEUE}"] * 2
