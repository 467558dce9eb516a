"""Order fulfilment: several services are called in turn, and completed steps are undone when a later one fails.

This is a saga. Every step that succeeds records its compensation. When the carrier refuses an order for good, the
compensations run in reverse order, and each is as durable as the step itself: it is retried until it succeeds.

    python examples/order_fulfilment.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from _stage import fresh, stage, tell

from penstock import RetryPolicy, Worker, activity, failures, workflow

QUEUE = "orders"


@dataclass
class Order:
    id: str
    item: str
    euros: int
    address: str


# The services, as activities. They may fail and therefore run more than once: each receives the order's id, by
# which a real service would recognise a repeated request.


@activity.defn
async def reserve_stock(order: Order) -> str:
    tell(f"{order.id}: the warehouse puts {order.item} aside")
    return f"shelf-{order.id}"


@activity.defn
async def release_stock(reservation: str) -> None:
    tell(f"  undo: the warehouse frees {reservation}")


@activity.defn
async def charge_card(order: Order) -> str:
    if order.item == "a harp" and activity.info().attempt == 1:
        tell(f"{order.id}: the bank does not answer (attempt 1)")
        raise ConnectionError("the bank does not answer")
    tell(f"{order.id}: the bank takes {order.euros} euros (attempt {activity.info().attempt})")
    return f"payment-{order.id}"


@activity.defn
async def refund_card(payment: str) -> None:
    if activity.info().attempt == 1:
        tell(f"  undo: the bank does not answer about {payment} (attempt 1)")
        raise ConnectionError("the bank does not answer")
    tell(f"  undo: the bank gives {payment} back (attempt {activity.info().attempt})")


@activity.defn
async def ship(order: Order) -> str:
    if order.address == "the Moon":
        tell(f"{order.id}: the carrier does not go to {order.address}")
        raise failures.ApplicationError(
            f"nobody delivers to {order.address}", type="NoSuchPlace", non_retryable=True
        )
    tell(f"{order.id}: the carrier takes {order.item} to {order.address}")
    return f"parcel-{order.id}"


AGAIN_SOON = RetryPolicy(initial_interval=timedelta(milliseconds=200))


@workflow.defn
class Fulfilment:
    """Reserve, charge, ship. Completed steps are undone, last first, if the order cannot be shipped."""

    @workflow.run
    async def run(self, order: Order) -> str:
        undo: list[tuple[Callable[..., Any], str]] = []
        try:
            undo.append((release_stock, await self.ask(reserve_stock, order)))
            undo.append((refund_card, await self.ask(charge_card, order)))
            parcel: str = await self.ask(ship, order)
        except failures.ActivityError as error:
            for step, done in reversed(undo):
                await self.ask(step, done)
            return f"given up: {error.cause}"
        return f"shipped as {parcel}"

    async def ask(self, service: Callable[..., Any], argument: Order | str) -> Any:
        return await workflow.execute_activity(
            service, argument, start_to_close_timeout=timedelta(seconds=10), retry_policy=AGAIN_SOON
        )


async def main() -> None:
    orders = [
        Order(fresh("order"), "a lute", 300, "1 Main Street"),
        Order(fresh("order"), "a harp", 4000, "2 High Street"),
        Order(fresh("order"), "a piano", 9000, "the Moon"),
    ]
    services: list[Callable[..., Any]] = [reserve_stock, release_stock, charge_card, refund_card, ship]
    async with (
        stage() as client,
        Worker(client, task_queue=QUEUE, workflows=[Fulfilment], activities=services),
    ):
        for order in orders:
            result = await client.execute_workflow(Fulfilment.run, order, id=order.id, task_queue=QUEUE)
            tell(f"{order.id} is done: {result}\n")
        tell("Three orders, each of them whole: shipped and paid, or neither.")


if __name__ == "__main__":
    asyncio.run(main())
