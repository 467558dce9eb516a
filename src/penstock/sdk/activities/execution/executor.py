"""Runs an activity in the event loop, a thread or a process, inside its interceptors."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from typing import Any

from penstock.sdk.activities.context import CURRENT
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.activities.execution.running_attempt import RunningAttempt
from penstock.sdk.activities.interceptors import ActivityInvoker, ExecuteActivityInput, chain
from penstock.sdk.activities.outcomes import ProcessDied, RemoteFailure, decoded_call, encoded_result
from penstock.sdk.activities.process_pool.pool import ProcessPool
from penstock.sdk.activities.process_pool.process_child import ProcessJob
from penstock.sdk.activities.process_pool.process_slot import ProcessExit
from penstock.sdk.converters import DataConverter, Envelope
from penstock.sdk.failures import ApplicationError
from penstock.sdk.lease import LeaseExpired


class ActivityExecutor:
    def __init__(
        self,
        converter: DataConverter,
        threads: Executor,
        processes: ProcessPool,
        targets: dict[str | None, str],
        interceptors: Sequence[Any],
    ) -> None:
        self._converter, self._threads, self._processes = converter, threads, processes
        self._targets, self._interceptors = targets, interceptors
        self._numbers = count(1)

    async def perform(self, call: RunningAttempt, arguments: Any) -> Envelope:
        """Run the activity of an attempt in its own task and return the encoded result."""
        CURRENT.set(call.context)
        myself = asyncio.current_task()
        assert myself is not None
        call.set_controls(myself.cancel)
        try:
            if call.definition.kind == "process" and not self._interceptors:
                return await self._in_process(call, arguments)
            return await self._within_interceptors(call, arguments)
        except SystemExit as error:  # it would stop the event loop
            raise ApplicationError(
                f"The activity called sys.exit({error.code!r})", type="SystemExit"
            ) from error

    async def _within_interceptors(self, call: RunningAttempt, arguments: Any) -> Envelope:
        definition = call.definition
        given, headers = decoded_call(definition, arguments, self._converter)
        call_input = ExecuteActivityInput(definition.fn, given, headers)
        if self._interceptors:
            innermost = ActivityInvoker(partial(self._innermost, call, arguments, given))
            value = await chain(self._interceptors, innermost, call.context).execute_activity(call_input)
        else:
            value = await self._innermost(call, arguments, given, call_input)
        return encoded_result(definition, value, self._converter)

    async def _innermost(
        self, call: RunningAttempt, sent: Any, given: list[Any], call_input: ExecuteActivityInput
    ) -> Any:
        match call.definition.kind:
            case "async":
                call.begin()
                return await call.definition.bound(call_input.args, call_input.fn)()
            case "thread":
                return await self._in_thread(call, call.definition.bound(call_input.args, call_input.fn))
            case "process":
                if call_input.args is not given:
                    sent = self._sent_anew(call.definition, call_input.args)
                result = await self._in_process(call, sent)
                return self._converter.decode(result, call.definition.ret_type)

    def _sent_anew(self, definition: ActivityDefinition, args: Sequence[Any]) -> Envelope:
        """Encode arguments that an interceptor has replaced."""
        values = args[0] if definition.dynamic else args
        return self._converter.encode_arguments(values, definition.label)

    async def _in_thread(self, call: RunningAttempt, function: Callable[[], Any]) -> Any:
        interruption = call.context.interruption
        assert interruption is not None
        inside = contextvars.copy_context()

        def begin() -> Any:
            call.begin()
            return function()

        running = self._threads.submit(inside.run, interruption.run, begin)
        call.set_controls(interruption.interrupt, end=running.cancel)
        return await asyncio.wrap_future(running)

    async def _in_process(self, call: RunningAttempt, arguments: Any) -> Envelope:
        number = next(self._numbers)
        target = self._targets[call.definition.name]
        async with self._processes.slot() as slot:
            call.begin()
            job = ProcessJob(number, target, arguments, call.context.info, call.lease.ends_at)
            running = asyncio.wrap_future(slot.run(job, call.send_heartbeat, call.lease))
            call.set_controls(
                partial(slot.send, "cancel", number),
                end=slot.kill,
                shutdown=partial(slot.send, "shutdown", number),
            )
            try:
                result = await asyncio.shield(running)
            except asyncio.CancelledError:
                slot.kill()  # the process is free for the next job
                await running
                raise
        if isinstance(result, ProcessExit):
            raise _death(call.definition, result)
        if result.not_begun:
            call.not_begun = True
            raise LeaseExpired
        call.context.cost = result.cost
        if result.failure is not None:
            raise RemoteFailure(result.failure, cancelled=result.cancelled)
        assert result.result is not None
        return result.result


def _death(definition: ActivityDefinition, death: ProcessExit) -> ProcessDied:
    where = "" if death.began else " while it started"
    hint = "" if death.began else '. A script must start its worker under `if __name__ == "__main__":`'
    message = f"The process of {definition.label} died{where}: {death}{hint}"
    return ProcessDied(message, began=death.began)
