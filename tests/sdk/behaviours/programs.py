"""Workflows as data: one workflow that executes the program it is given.

A program is a list whose first item is an operation. Its result does not depend on timing, unless it contains a
`race` or a `within`.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from penstock import RetryPolicy, activity, workflow
from penstock.sdk.failures import ActivityError, ApplicationError, ChildWorkflowError

Program = list[Any]
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=10), backoff_coefficient=1)


@activity.defn
async def give(value: Any) -> Any:
    return value


@activity.defn
async def refuse(value: Any) -> Any:
    raise ApplicationError(f"refused {value}", type="Refused", non_retryable=True)


@workflow.defn
class Interpreter:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    @workflow.run
    async def run(self, program: Program) -> Any:
        return await self.do(program)

    @workflow.signal
    def tell(self, what: Any) -> None:
        self.heard.append(what)

    async def do(self, program: Program) -> Any:
        word, *rest = program
        return await getattr(self, f"do_{word}")(*rest)

    async def do_give(self, value: Any) -> Any:
        return await workflow.execute_activity(give, value)

    async def do_refuse(self, value: Any) -> Any:
        try:
            return await workflow.execute_activity(refuse, value)
        except ActivityError as error:
            return f"failed: {error.cause}"

    async def do_local(self, value: Any) -> Any:
        return await workflow.execute_local_activity(give, value, retry_policy=QUICK)

    async def do_local_refuse(self, value: Any) -> Any:
        try:
            return await workflow.execute_local_activity(refuse, value)
        except ActivityError as error:
            return f"failed: {error.cause}"

    async def do_sleep(self, milliseconds: int) -> str:
        await asyncio.sleep(milliseconds / 1000)
        return f"slept {milliseconds}"

    async def do_child(self, program: Program) -> Any:
        try:
            return ["child", await workflow.execute_child_workflow(Interpreter.run, program)]
        except ChildWorkflowError as error:
            return f"child failed: {error.cause}"

    async def do_fail(self, value: Any) -> Any:
        raise ApplicationError(f"failed {value}", type="Failed")

    async def do_catch(self, program: Program) -> Any:
        try:
            return await self.do(program)
        except ApplicationError as error:
            return f"caught: {error.message}"

    async def do_one_by_one(self, programs: list[Program]) -> list[Any]:
        return [await self.do(each) for each in programs]

    async def do_together(self, programs: list[Program]) -> list[Any]:
        return await asyncio.gather(*map(self.do, programs))

    async def do_group(self, programs: list[Program]) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.do(["catch", each])) for each in programs]
        return [task.result() for task in tasks]

    async def do_give_up(self, program: Program) -> Any:
        """Start something and cancel it before it can have an outcome."""
        task = asyncio.create_task(self.do(program))
        await asyncio.sleep(0)
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            return "given up"

    async def do_hear(self, count: int) -> Any:
        await workflow.wait_condition(lambda: len(self.heard) >= count)
        return self.heard[:count]

    async def do_note(self, value: Any) -> Any:
        workflow.upsert_memo({"note": value})
        return workflow.memo_value("note")

    async def do_patch(self, name: str) -> bool:
        return workflow.patched(name)

    # What follows depends on timing.

    async def do_race(self, programs: list[Program]) -> Any:
        tasks = [asyncio.create_task(self.do(each)) for each in programs]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return [tasks.index(task) for task in done] + [task.result() for task in done if not task.exception()]

    async def do_within(self, milliseconds: int, program: Program) -> Any:
        try:
            async with asyncio.timeout(milliseconds / 1000):
                return await self.do(program)
        except TimeoutError:
            return "too late"

    async def do_shield(self, program: Program) -> Any:
        task = asyncio.ensure_future(self.do(program))
        try:
            async with asyncio.timeout(0.02):
                return await asyncio.shield(task)
        except TimeoutError:
            return ["late", await task]

    async def do_stop(self, milliseconds: int, how: str) -> Any:
        """Cancel an activity by its handle, possibly after it has ended."""
        kind = workflow.ActivityCancellationType(how)
        work = workflow.start_activity(give, how, cancellation_type=kind)
        await asyncio.sleep(milliseconds / 1000)
        work.cancel()
        try:
            return await work
        except ActivityError as error:
            return f"stopped: {type(error.cause).__name__}"

    async def do_chance(self) -> Any:
        return [workflow.random().random(), str(workflow.uuid4()), workflow.now().isoformat()]


def signals_in(program: Any) -> int:
    """How many signals a program waits for, children not counted."""
    if not isinstance(program, list) or not program or program[0] == "child":
        return 0
    if program[0] == "hear":
        return int(program[1])
    return max((signals_in(each) for each in program), default=0)
