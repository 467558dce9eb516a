"""Behaviours: signals, queries and updates."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from penstock import workflow
from penstock.sdk.clients.starts import WithStartWorkflowOperation
from penstock.sdk.failures import (
    ApplicationError,
    QueryRejected,
    UpdateFailedError,
    UpdateRejectedError,
    WorkflowClosedError,
)
from tests.sdk.behaviours import acts
from tests.sdk.behaviours.scene import Scene, behaviour, refused


@workflow.defn
class Mailbox:
    """Collects signals until it is asked to end."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.over = False

    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.wait_condition(lambda: self.over)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.heard

    @workflow.signal
    def hear(self, what: Any) -> None:
        self.heard.append(what)

    @workflow.signal
    async def fetch(self, what: Any) -> None:
        self.heard.append(await workflow.execute_activity(acts.echo, what))

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def count(self) -> int:
        return len(self.heard)

    @workflow.query
    def item(self, number: int) -> Any:
        return self.heard[number]


@behaviour("signals are heard in order, each once")
async def _(scene: Scene) -> None:
    handle = await scene.start(Mailbox.run)
    for number in range(10):
        await handle.signal(Mailbox.hear, number)
    await handle.signal(Mailbox.end)
    assert await handle.result() == list(range(10))


@behaviour("a signal with the start is heard before the first line waits")
async def _(scene: Scene) -> None:
    handle = await scene.start(Mailbox.run, start_signal=Mailbox.hear, start_signal_args=["first"])
    await handle.signal(Mailbox.end)
    assert await handle.result() == ["first"]


@behaviour("a handler that runs activities is finished before the run ends, if the run waits for it")
async def _(scene: Scene) -> None:
    handle = await scene.start(Mailbox.run)
    for number in range(3):
        await handle.signal(Mailbox.fetch, number)
    await handle.signal(Mailbox.end)
    assert sorted(await handle.result()) == [0, 1, 2]


@behaviour("a query with arguments answers from what the run knows, also when the run has ended")
async def _(scene: Scene) -> None:
    handle = await scene.start(Mailbox.run)
    await handle.signal(Mailbox.hear, "x")
    await handle.signal(Mailbox.hear, "y")
    await scene.until(handle, Mailbox.count, 2)
    assert await scene.ask(handle, Mailbox.item, 1) == "y"
    await handle.signal(Mailbox.end)
    assert await handle.result() == ["x", "y"]
    assert await scene.ask(handle, Mailbox.item, 0) == "x"


@behaviour("a query that raises and one that is unknown are refused, and the run goes on")
async def _(scene: Scene) -> None:
    handle = await scene.start(Mailbox.run)
    with refused(QueryRejected, "list index out of range"):
        await scene.ask(handle, Mailbox.item, 5)
    with refused(QueryRejected, "coun"):
        await scene.ask(handle, "coun")
    await handle.signal(Mailbox.end)
    assert await handle.result() == []


@workflow.defn
class RacesWithItsEnd:
    def __init__(self) -> None:
        self.heard: list[int] = []

    @workflow.run
    async def run(self) -> list[int]:
        await workflow.execute_activity(acts.pause, args=[0.1, None])
        return self.heard

    @workflow.signal
    def hear(self, number: int) -> None:
        self.heard.append(number)


@behaviour("a signal that was taken before the end is in the result, however close it came")
async def _(scene: Scene) -> None:
    handle = await scene.start(RacesWithItsEnd.run)
    await scene.until_recorded(handle, "WorkflowTaskCompleted")
    taken = 0
    for _ in range(9):
        try:
            await handle.signal(RacesWithItsEnd.hear, taken)
        except WorkflowClosedError:
            break
        taken += 1
        await asyncio.sleep(0.02)
    assert await handle.result() == list(range(taken))


@workflow.defn
class Dynamic:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    @workflow.run
    async def run(self) -> list[Any]:
        await workflow.wait_condition(lambda: len(self.heard) == 3)
        return self.heard

    @workflow.signal(dynamic=True)
    def any_signal(self, name: str, *args: Any) -> None:
        self.heard.append(["signal", name, list(args)])

    @workflow.query(dynamic=True)
    def any_query(self, name: str, *args: Any) -> Any:
        return [name, list(args), len(self.heard)]

    @workflow.update(dynamic=True)
    async def any_update(self, name: str, *args: Any) -> Any:
        self.heard.append(["update", name, list(args)])
        return len(self.heard)


@behaviour("dynamic handlers hear every name")
async def _(scene: Scene) -> None:
    handle = await scene.start(Dynamic.run)
    await handle.signal("left", args=[1, 2])
    while await scene.ask(handle, "how", 7) != ["how", [7], 1]:
        await asyncio.sleep(0.03)
    assert await scene.update(handle, "right", "x") == 2
    await handle.signal("done")
    assert await handle.result() == [
        ["signal", "left", [1, 2]],
        ["update", "right", ["x"]],
        ["signal", "done", []],
    ]


@workflow.defn
class Account:
    def __init__(self) -> None:
        self.balance = 0
        self.ids: list[str] = []
        self.closed = False

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self.closed)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return self.balance

    @workflow.update
    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @deposit.validator
    def check(self, amount: int) -> None:
        if amount <= 0:
            raise ValueError("an amount must be positive")

    @workflow.update
    async def transfer(self, amount: int) -> list[Any]:
        taken = await workflow.execute_activity(acts.echo, amount)
        await asyncio.sleep(0.02)
        if taken > self.balance:
            raise ApplicationError("not enough", self.balance, type="Overdrawn")
        self.balance -= taken
        info = workflow.current_update_info()
        return [self.balance, info.name]

    @workflow.update
    def close(self) -> str:
        self.closed = True
        return "closed"


@behaviour("an update answers, and its validator may refuse it without a trace")
async def _(scene: Scene) -> None:
    handle = await scene.start(Account.run)
    assert await scene.update(handle, Account.deposit, 5) == 5
    with refused(UpdateRejectedError, "must be positive"):
        await scene.update(handle, Account.deposit, -1)
    assert await scene.update(handle, Account.deposit, 7) == 12
    assert await scene.update(handle, Account.close) == "closed"
    assert await handle.result() == 12
    assert (await scene.event_types(handle)).count("UpdateAccepted") == 3


@behaviour("an update may run activities and sleep, and several do so side by side")
async def _(scene: Scene) -> None:
    handle = await scene.start(Account.run)
    await scene.update(handle, Account.deposit, 10)
    told = await asyncio.gather(*(scene.update(handle, Account.transfer, n) for n in (1, 2, 3)))
    assert sorted(name for _, name in told) == ["transfer"] * 3
    assert await scene.update(handle, Account.close) == "closed"
    assert await handle.result() == 4


@behaviour("an update that fails says why, and the run goes on")
async def _(scene: Scene) -> None:
    handle = await scene.start(Account.run)
    with refused(UpdateFailedError, "not enough") as caught:
        await scene.update(handle, Account.transfer, 1)
    cause = caught.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.details) == ("Overdrawn", (0,))
    assert await scene.update(handle, Account.close) == "closed"
    assert await handle.result() == 0


@behaviour("an update that the workflow does not know is refused, and the run goes on")
async def _(scene: Scene) -> None:
    handle = await scene.start(Account.run)
    with refused(Exception, "withdraw"):
        await scene.update(handle, "withdraw", 1)
    assert await scene.update(handle, Account.close) == "closed"
    assert await handle.result() == 0


@behaviour("an update with the start reaches the run that it began")
async def _(scene: Scene) -> None:
    workflow_id = scene.new_id()
    answer = await scene.patiently(
        lambda: scene.client.execute_update_with_start_workflow(
            Account.deposit,
            3,
            id="deposit",
            start_workflow_operation=WithStartWorkflowOperation(
                Account.run, id=workflow_id, task_queue=scene.queue
            ),
        )
    )
    assert answer == 3
    handle = scene.find(workflow_id)
    assert await scene.update(handle, Account.close) == "closed"
    assert await handle.result() == 3


@workflow.defn
class FailsInHandler:
    @workflow.run
    async def run(self) -> None:
        await asyncio.Event().wait()

    @workflow.signal
    async def spoil(self, words: Sequence[str]) -> None:
        await workflow.execute_activity(acts.echo, None)
        raise ApplicationError(" ".join(words), type="Spoilt")


@behaviour("a handler of a signal that fails fails the run")
async def _(scene: Scene) -> None:
    handle = await scene.start(FailsInHandler.run)
    await handle.signal(FailsInHandler.spoil, ["gone", "bad"])
    failure = await scene.failure_of(handle)
    assert (failure.type, failure.message) == ("Spoilt", "gone bad")
