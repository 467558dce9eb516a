"""Polls for tasks of one kind: take slots, poll for as many tasks, start them."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import Reason
from penstock.sdk.failures import ServerRefused, Unreachable
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import ErrorPolicy, is_fatal, is_transient, retry_after_s
from penstock.sdk.worker.matching.backoff import Backoff
from penstock.sdk.worker.matching.rate_limiter import RateLimiter
from penstock.sdk.worker.matching.slots import Slots
from penstock.sdk.worker.metrics import WorkerMetrics

Json = dict[str, Any]
DRAINING_PAUSE_S = 5.0
LOOP_TURNS_TO_REPORT = 6
"""Event loop iterations from the start of a task that never waits until its report is sent."""


@dataclass(frozen=True, slots=True)
class PollContext:
    """What all polls of a worker share."""

    register: Callable[[], Awaitable[None]]
    error_policy: ErrorPolicy
    metrics: WorkerMetrics


async def let_tasks_start() -> None:
    """Let new tasks begin before the next poll, so that tasks that end immediately are reported first."""
    for _ in range(LOOP_TURNS_TO_REPORT):
        await asyncio.sleep(0)


class Poller:
    """Keeps polls open while slots are free. The slots are taken before the poll is sent."""

    def __init__(
        self,
        kind: str,
        ask: Callable[[int, str], Awaitable[list[Json]]],
        start: Callable[[Json], None],
        slots: Slots,
        poll_context: PollContext,
        *,
        polls: int,
        batch_max: int,
        rate_limiter: RateLimiter | None = None,
        hand_back: Callable[[Json], Awaitable[object]] | None = None,
    ) -> None:
        """`hand_back` returns tasks for which there is no slot any more; without it they are run anyway."""
        self._kind, self._ask, self._start, self._slots = kind, ask, start, slots
        self._polls, self._batch_max = polls, batch_max
        self._poll_context = poll_context
        self._rate_limiter = rate_limiter or RateLimiter(None)
        self._hand_back = hand_back

    @property
    def has_slots(self) -> bool:
        """Whether this poller has any slots. Without slots it does not poll."""
        return self._polls > 0 and self._slots.total > 0

    @property
    def _batch(self) -> int:
        """The batch size at which all polls together ask for all slots."""
        polls = max(1, min(self._polls, self._slots.total))
        return max(1, min(self._batch_max, math.ceil(self._slots.total / polls)))

    async def run(self) -> None:
        """Poll until cancelled. Raises a fatal refusal of the server."""
        async with asyncio.TaskGroup() as loops:
            for _ in range(self._polls):
                loops.create_task(self._poll_loop())

    async def _poll_loop(self) -> None:
        pauses = Backoff()
        while True:
            pause_s = await self._poll_once(pauses)
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _poll_once(self, pauses: Backoff) -> float:
        """Poll once and return the pause before the next poll."""
        taken = await self._slots.take(self._batch)
        tokens = started = 0
        try:
            tokens = await self._rate_limiter.take(taken)
            self._slots.give_back(taken - tokens)
            taken = tokens
            tasks = await self._poll_response(tokens, pauses)
            fitting = self._fitting(taken, len(tasks))
            for task in tasks[:fitting]:
                self._start(task)
                started += 1
            for task in tasks[fitting:]:
                await self._return_task(task)
        except Exception as error:
            return await self._on_poll_error(error, pauses)
        finally:
            self._rate_limiter.settle(tokens, started)
            self._slots.give_back(taken - started)
        if started:
            await let_tasks_start()
        pauses.reset()
        self._poll_context.error_policy.report_recovery()
        self._poll_context.metrics.count(names.POLLS, kind=self._kind, outcome="tasks" if tasks else "empty")
        return 0.0

    def _fitting(self, taken: int, tasks: int) -> int:
        """Return how many of the received tasks may start. The number of slots may have shrunk during the poll."""
        if self._hand_back is None:
            return tasks
        return min(self._slots.fitting(taken), self._rate_limiter.fitting(taken), tasks)

    async def _return_task(self, task: Json) -> None:
        assert self._hand_back is not None
        await self._hand_back(task)

    async def _poll_response(self, tasks_max: int, pauses: Backoff) -> list[Json]:
        """Return the response to one poll, resent under the same id until it arrives: the server then returns the
        same leases.
        """
        poll_id = f"{self._kind}-poll-{secrets.token_hex(12)}"
        while True:
            try:
                return await self._ask(tasks_max, poll_id)
            except (ServerRefused, Unreachable) as error:
                if not is_transient(error):
                    raise
                self._poll_context.error_policy.report_error(error)
                await asyncio.sleep(pauses.pause_s(retry_after_s(error)))

    async def _on_poll_error(self, error: Exception, pauses: Backoff) -> float:
        if is_fatal(error) or not isinstance(error, ServerRefused | Unreachable):
            raise error
        self._poll_context.metrics.count(names.POLLS, kind=self._kind, outcome="refused")
        if isinstance(error, ServerRefused) and error.reason == Reason.WORKER_NOT_REGISTERED:
            await self._poll_context.register()
            return pauses.pause_s()
        self._poll_context.error_policy.report_error(error)
        draining = isinstance(error, ServerRefused) and error.reason == Reason.WORKER_DRAINING
        return pauses.pause_s(max(retry_after_s(error), DRAINING_PAUSE_S if draining else 0.0))
