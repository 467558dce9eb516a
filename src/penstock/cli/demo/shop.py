"""The shop of the demo: one workflow and its activities, with failures built in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

from penstock.sdk import activity, failures, workflow
from penstock.sdk.retry import RetryPolicy

SHOP, BANK = "shop", "bank"
"""The queues: one for orders, stock and parcels; one for the bank, which has a lease limit."""

SLOW_BANK, NOWHERE = "a harp", "the Moon"
"""The item whose first charge fails, and the address that cannot be delivered to."""

RETRY_SOON = RetryPolicy(initial_interval=timedelta(milliseconds=300))
HEARTBEAT_TIMEOUT = timedelta(seconds=1)
"""An attempt without a heartbeat for this long is retried on another worker."""


@dataclass
class ShopOrder:
    id: str
    customer: str
    item: str
    address: str
    charge_seconds: float = 0.4


Service = Callable[[ShopOrder], Awaitable[None]]


def _report(order: ShopOrder, step: str, what: str) -> None:
    """Report a step on stdout, for the demo to read."""
    line = {"order": order.id, "step": step, "what": what, "attempt": activity.info().attempt}
    print(json.dumps(line), flush=True)


async def _work(order: ShopOrder, step: str, seconds: float) -> None:
    _report(order, step, "begins")
    await asyncio.sleep(seconds)
    _report(order, step, "done")


@activity.defn(auto_heartbeat=True)
async def reserve(order: ShopOrder) -> None:
    await _work(order, "reserve", 0.1)


@activity.defn(auto_heartbeat=True)
async def charge(order: ShopOrder) -> None:
    if order.item == SLOW_BANK and activity.info().attempt == 1:
        _report(order, "charge", "fails")
        raise ConnectionError("the bank does not answer")
    await _work(order, "charge", order.charge_seconds)


@activity.defn(auto_heartbeat=True)
async def ship(order: ShopOrder) -> None:
    if order.address == NOWHERE:
        _report(order, "ship", "refused")
        raise failures.ApplicationError(f"nobody delivers to {NOWHERE}", non_retryable=True)
    await _work(order, "ship", 0.1)


@activity.defn(auto_heartbeat=True)
async def refund(order: ShopOrder) -> None:
    await _work(order, "refund", 0.1)


@activity.defn(auto_heartbeat=True)
async def release(order: ShopOrder) -> None:
    await _work(order, "release", 0.1)


SERVICES = {SHOP: (reserve, ship, release), BANK: (charge, refund)}


@workflow.defn(name="demo.order")
class Fulfilment:
    """Reserve, charge, wait, ship. If the order cannot be shipped, the steps are compensated in reverse order."""

    @workflow.run
    async def run(self, order: ShopOrder) -> str:
        await self.ask(reserve, order, SHOP)
        await self.ask(charge, order, BANK)
        await workflow.sleep(0.5)
        try:
            await self.ask(ship, order, SHOP)
        except failures.ActivityError as error:
            await self.ask(refund, order, BANK)
            await self.ask(release, order, SHOP)
            return f"undone: {getattr(error.cause, 'message', error.cause)}"
        return "shipped"

    async def ask(self, service: Service, order: ShopOrder, queue: str) -> None:
        await workflow.execute_activity(
            service,
            order,
            task_queue=queue,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RETRY_SOON,
            summary=order.customer,
        )
