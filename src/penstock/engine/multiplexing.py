"""One poll for two kinds of work: workflow tasks, and updates to be validated. Whichever comes first is given."""

from __future__ import annotations

import asyncio

from penstock.engine import desk, validation
from penstock.engine.deadlines import Deadline
from penstock.engine.desk import LeasedQuery
from penstock.engine.dispatcher import Dispatcher, PollAnswer
from penstock.engine.house import House
from penstock.engine.polls import Poll
from penstock.ports.store import Tx


async def poll(house: House, dispatcher: Dispatcher, request: Poll, wait_ms: int) -> PollAnswer | LeasedQuery:
    """Lease workflow tasks or an update, or say why not when the wait is over.

    A poll that is repeated gets the tasks that it was given before. What was leased in the very moment in which
    the other kind came, or the caller went away, waits again.
    """
    deadline = Deadline(wait_ms)
    async with deadline.kept(), dispatcher.turn(request, deadline):
        if not await _was_given(house, request):
            leased = await validation.poll_beside(house, request, 0, dispatcher.draining)
            if leased is not None:
                return leased
        return await _first(house, dispatcher, request, deadline)


async def _was_given(house: House, request: Poll) -> bool:
    """Whether this very poll has leased tasks that it still holds."""
    if request.poll_request_id is None:
        return False
    name = (request.worker_id, request.poll_request_id)

    async def operation(tx: Tx) -> bool:
        return any(await tx.tasks.redelivered(request.namespace, [name]))

    return await house.store.read(operation)


async def _first(
    house: House, dispatcher: Dispatcher, request: Poll, deadline: Deadline
) -> PollAnswer | LeasedQuery:
    tasks = asyncio.ensure_future(dispatcher.attend(request, deadline))
    updates = asyncio.ensure_future(
        validation.poll_beside(house, request, deadline.left_ms, dispatcher.draining)
    )
    try:
        await asyncio.wait([tasks, updates], return_when=asyncio.FIRST_COMPLETED)
        if not tasks.done() and _leased(updates) is None:
            await asyncio.wait([tasks])
        return await _choose(house, dispatcher, tasks, updates)
    except asyncio.CancelledError:
        await _end(tasks)
        await _end(updates)
        _give_back(dispatcher, tasks)
        _hand_back(house, dispatcher, updates)
        raise


async def _choose(
    house: House,
    dispatcher: Dispatcher,
    tasks: asyncio.Future[PollAnswer],
    updates: asyncio.Future[LeasedQuery | None],
) -> PollAnswer | LeasedQuery:
    """What has come; if both have, the tasks."""
    if not tasks.done():
        await _end(tasks)
        _give_back(dispatcher, tasks)
        leased = _leased(updates)
        assert leased is not None, "one of the two has come"
        return leased
    await _end(updates)
    leased = _leased(updates)
    if leased is not None and tasks.exception() is None and not tasks.result().leased:
        return leased
    _hand_back(house, dispatcher, updates)
    return tasks.result()


async def _end(work: asyncio.Future[PollAnswer] | asyncio.Future[LeasedQuery | None]) -> None:
    work.cancel()
    await asyncio.wait([work])


def _leased(updates: asyncio.Future[LeasedQuery | None]) -> LeasedQuery | None:
    """The update that was leased. A wait for updates that failed has none; tasks are waited for alone then."""
    ended = updates.done() and not updates.cancelled() and updates.exception() is None
    return updates.result() if ended else None


def _give_back(dispatcher: Dispatcher, tasks: asyncio.Future[PollAnswer]) -> None:
    if not tasks.cancelled() and tasks.exception() is None and tasks.result().leased:
        dispatcher.give_back(tasks.result().leased)


def _hand_back(house: House, dispatcher: Dispatcher, updates: asyncio.Future[LeasedQuery | None]) -> None:
    leased = _leased(updates)
    if leased is not None:
        dispatcher.undo(desk.hand_back(house, leased))
