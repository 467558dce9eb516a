"""Orders that wait for approval, a counter that continues as new, and an inbox. Run it beside `penstock dev`."""

import asyncio
import contextlib
import os

from durable_workflow import ActivityRetryPolicy, Client, Worker, activity, workflow
from durable_workflow.client import WorkflowStreamAppendItem
from durable_workflow.errors import InvalidArgument


@activity.defn(name="payments.capture")
async def capture(order: str) -> dict[str, str]:
    if activity.context().info.attempt_number == 1:
        raise TimeoutError("gateway timeout")  # the second attempt gets through
    return {"order": order, "receipt": "r-77"}


@activity.defn(name="stock.reserve")
async def reserve(order: str) -> bool:
    return True


@activity.defn(name="stock.pack")
async def pack(order: str) -> int:
    return 2


@workflow.defn(name="orders.ship")
class Ship:
    def run(self, ctx, order):
        yield ctx.sleep(1)
        return {"tracking": f"t-{order}"}


@workflow.defn(name="orders.fulfillment")
class Fulfillment:
    """Takes the money, reserves and packs, waits for approval, then ships."""

    def __init__(self):
        self.approved_by = None
        self.address = None

    @workflow.signal("approve")
    def approve(self, who):
        self.approved_by = who

    @workflow.query("status")
    def status(self):
        return {"approved_by": self.approved_by, "address": self.address}

    @workflow.update("set_address")
    def set_address(self, address):
        self.address = address
        return f"ships to {address}"

    @workflow.update_validator("set_address")
    def check_address(self, address):
        if not address:
            raise InvalidArgument("an address is needed")

    def run(self, ctx, order):
        yield ctx.schedule_activity(
            "payments.capture", [order], retry_policy=ActivityRetryPolicy(max_attempts=3)
        )
        yield [ctx.schedule_activity("stock.reserve", [order]), ctx.schedule_activity("stock.pack", [order])]
        yield ctx.append_workflow_stream("progress", [WorkflowStreamAppendItem("packed")])
        approved = yield ctx.wait_condition(
            lambda: self.approved_by is not None, key="approved", timeout=86400
        )
        if not approved:
            return "not approved in time"
        shipped = yield ctx.start_child_workflow("orders.ship", [order], parent_close_policy="request_cancel")
        yield ctx.append_workflow_stream("progress", [WorkflowStreamAppendItem("shipped")])
        return {"approved_by": self.approved_by, "shipped": shipped}


@workflow.defn(name="counters.count")
class Count:
    """Counts what it is told, and begins a new run after every three."""

    def __init__(self):
        self.total = 0
        self.amounts = []

    @workflow.signal("add")
    def add(self, amount):
        self.amounts.append(amount)

    @workflow.query("total")
    def shown(self):
        return self.total + sum(self.amounts)

    def run(self, ctx, total):
        self.total = total
        yield ctx.wait_condition(lambda: len(self.amounts) >= 3, key="three")
        return ctx.continue_as_new(self.shown())


@workflow.defn(name="desk.inbox")
class Inbox:
    """Reads letters of one message stream, in their order."""

    def run(self, ctx, count):
        mail = ctx.message_stream("mail")
        read = []
        while len(read) < count:
            message = yield from mail.receive_one()
            read.append(message.arguments[0])
        return read


async def main() -> None:
    client = Client(
        os.environ["DURABLE_WORKFLOW_SERVER_URL"], token=os.environ["DURABLE_WORKFLOW_AUTH_TOKEN"]
    )
    async with client:
        worker = Worker(
            client,
            task_queue="orders",
            workflows=[Fulfillment, Ship, Count, Inbox],
            activities=[capture, reserve, pack],
        )
        await worker.run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
