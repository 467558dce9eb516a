"""One poll for workflow tasks and update validations; whichever arrives first is returned."""

from __future__ import annotations

import asyncio

from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching import query_tasks, update_validation
from penstock.engine.matching.dispatcher import Dispatcher, PollAnswer
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.engine.runtime.deadlines import Deadline
from penstock.ports.store import Tx


async def poll(
    ctx: EngineContext, dispatcher: Dispatcher, request: Poll, wait_ms: int
) -> PollAnswer | LeasedQuery:
    """Lease workflow tasks or an update validation; at the end of the wait, return the hold.

    A repeated poll gets the tasks that it leased before. If both kinds are leased at the same moment, or the caller
    disconnects, the surplus lease is handed back.
    """
    async with dispatcher.turn(request, wait_ms) as deadline:
        if not await _was_given(ctx, request):
            leased = await update_validation.poll_alongside(ctx, request, 0, dispatcher.draining)
            if leased is not None:
                return leased
        return await _first(ctx, dispatcher, request, deadline)


async def _was_given(ctx: EngineContext, request: Poll) -> bool:
    """Whether an earlier delivery of this poll request leased tasks that are still held."""
    if request.poll_request_id is None:
        return False
    name = (request.worker_id, request.poll_request_id)

    async def operation(tx: Tx) -> bool:
        return any(await tx.tasks.redelivered(request.namespace, [name]))

    return await ctx.store.read(operation)


async def _first(
    ctx: EngineContext, dispatcher: Dispatcher, request: Poll, deadline: Deadline
) -> PollAnswer | LeasedQuery:
    tasks = asyncio.ensure_future(dispatcher.attend(request, deadline))
    updates = asyncio.ensure_future(
        update_validation.poll_alongside(ctx, request, deadline.left_ms, dispatcher.draining)
    )
    try:
        await asyncio.wait([tasks, updates], return_when=asyncio.FIRST_COMPLETED)
        if not tasks.done() and _leased(updates) is None:
            await asyncio.wait([tasks])
        return await _choose(ctx, dispatcher, tasks, updates)
    except asyncio.CancelledError:
        await _end(tasks)
        await _end(updates)
        _give_back(dispatcher, tasks)
        _hand_back(ctx, dispatcher, updates)
        raise


async def _choose(
    ctx: EngineContext,
    dispatcher: Dispatcher,
    tasks: asyncio.Future[PollAnswer],
    updates: asyncio.Future[LeasedQuery | None],
) -> PollAnswer | LeasedQuery:
    """The result that arrived; if both did, the tasks."""
    if not tasks.done():
        await _end(tasks)
        _give_back(dispatcher, tasks)
        leased = _leased(updates)
        assert leased is not None, "one of the two has arrived"
        return leased
    await _end(updates)
    leased = _leased(updates)
    if leased is not None and tasks.exception() is None and not tasks.result().leased:
        return leased
    _hand_back(ctx, dispatcher, updates)
    return tasks.result()


async def _end(work: asyncio.Future[PollAnswer] | asyncio.Future[LeasedQuery | None]) -> None:
    work.cancel()
    await asyncio.wait([work])


def _leased(updates: asyncio.Future[LeasedQuery | None]) -> LeasedQuery | None:
    """The leased update validation; None if there is none or the wait for it failed."""
    ended = updates.done() and not updates.cancelled() and updates.exception() is None
    return updates.result() if ended else None


def _give_back(dispatcher: Dispatcher, tasks: asyncio.Future[PollAnswer]) -> None:
    if not tasks.cancelled() and tasks.exception() is None and tasks.result().leased:
        dispatcher.give_back(tasks.result().leased)


def _hand_back(
    ctx: EngineContext, dispatcher: Dispatcher, updates: asyncio.Future[LeasedQuery | None]
) -> None:
    leased = _leased(updates)
    if leased is not None:
        dispatcher.run_in_background(query_tasks.hand_back(ctx, leased))
