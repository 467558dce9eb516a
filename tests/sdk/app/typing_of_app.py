"""What a type checker infers for tasks. Nothing here runs: mypy checks it with the tests."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from penstock import Penstock, TaskHandle, TaskStatus, workflow

app = Penstock("shop")


@app.task
async def add(first: int, second: int = 2) -> int:
    return first + second


@app.task(queue="mail", retry=3)
def mail(to: str) -> bytes:
    return to.encode()


@app.task(timeout=timedelta(seconds=5))
async def rest() -> None: ...


@app.workflow
@workflow.defn
class Order:
    @workflow.run
    async def run(self, number: int) -> int:
        assert_type(await workflow.execute_activity(add, number, start_to_close_timeout=timedelta(5)), int)
        return number


async def sending() -> None:
    assert_type(await add.send(1, 2), TaskHandle[int])
    assert_type(await add.send(first=1), TaskHandle[int])
    assert_type(await (await add.send(1)).result(timeout=5), int)
    assert_type(await mail.send("ada"), TaskHandle[bytes])
    assert_type(await rest.send(), TaskHandle[None])
    assert_type(await add.schedule(timedelta(minutes=5), 1, 2), TaskHandle[int])
    assert_type(await add.with_options(priority=1, good_until=timedelta(1)).send(1), TaskHandle[int])
    assert_type(await add.send_many([(1, 2), (3, 4)]), list[TaskHandle[int]])
    assert_type(await (await add.send(1)).status(), TaskStatus)
    assert_type(await add.handle("a").result(), int)


def waiting() -> None:
    assert_type(mail.send_sync("ada"), TaskHandle[bytes])
    assert_type(add.send_sync(1).result_sync(), int)
    assert_type(add.schedule_sync(timedelta(1), 1), TaskHandle[int])


async def calling() -> None:
    assert_type(await add(1, 2), int)
    assert_type(mail("ada"), bytes)


async def mistakes() -> None:
    await add.send("one")  # type: ignore[arg-type]
    await add.send(1, 2, 3)  # type: ignore[call-arg]
    await add.send(third=3)  # type: ignore[call-arg]
    await add.schedule(5, 1)  # type: ignore[arg-type]
    await add.schedule(timedelta(1), "one")  # type: ignore[arg-type]
    add.with_options(prioriti=1)  # type: ignore[call-arg]
    mail(5)  # type: ignore[arg-type]
    mail.send_sync(5)  # type: ignore[arg-type]
    app.task(retries=3)  # type: ignore[call-overload]
