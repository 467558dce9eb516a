"""Multi-tenant fan-out: one tenant has a large backlog, and the small ones do not wait behind it.

Three tenants share one queue and one worker. The biggest comes first, with more work than the others together. Each
tenant's workflow sets a fairness key (whose work it is) and a weight (its share of the queue); the activities that it
fans out to inherit both. While all three have work waiting, the queue dispatches 2 : 1 : 1.

    python examples/tenants.py
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from _stage import fresh, stage, tell

from penstock import Client, Priority, Worker, WorkflowHandle, activity, workflow

DESK, PRESS = "tenants", "tenants-press"
"""The queue of the workflows, and the queue of all pages of all tenants."""


@dataclass
class Tenant:
    name: str
    pages: int
    weight: float


TENANTS = [Tenant("whale", 60, 2), Tenant("bakery", 10, 1), Tenant("florist", 10, 1)]
ALL_WAIT = 40
"""Number of pages printed while every tenant has some left: 20 + 10 + 10."""

printed: list[str] = []


@activity.defn
async def print_page(tenant: str, page: int) -> str:
    printed.append(tenant)
    await asyncio.sleep(0.005)
    return f"{tenant}-{page}"


@workflow.defn
class PrintAll:
    """Fans out: all pages are queued at once, and the workflow waits for all of them."""

    @workflow.run
    async def run(self, tenant: Tenant) -> int:
        pages = [
            workflow.start_activity(
                print_page,
                args=[tenant.name, page],
                task_queue=PRESS,
                start_to_close_timeout=timedelta(seconds=30),
            )
            for page in range(tenant.pages)
        ]
        return len(await asyncio.gather(*pages))


async def start(client: Client, tenant: Tenant) -> WorkflowHandle[int]:
    handle = await client.start_workflow(
        PrintAll.run,
        tenant,
        id=fresh(tenant.name),
        task_queue=DESK,
        priority=Priority(fairness_key=tenant.name, fairness_weight=tenant.weight),
    )
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event["event_type"] == "ActivityScheduled":
            break
    tell(f"{tenant.name} has {tenant.pages} pages in the queue (weight {tenant.weight:g})")
    return handle


def bar(count: int) -> str:
    return "█" * count


async def main() -> None:
    async with stage() as client, Worker(client, task_queue=DESK, workflows=[PrintAll]):
        handles = [await start(client, tenant) for tenant in TENANTS]
        tell("The press starts only now: one page at a time, and 80 wait.")
        async with Worker(client, task_queue=PRESS, activities=[print_page], max_concurrent_activity_tasks=1):
            await asyncio.gather(*(handle.result() for handle in handles))
        show()


def show() -> None:
    while_all_wait = Counter(printed[:ALL_WAIT])
    tell(f"Of the first {ALL_WAIT} pages, while every tenant had some waiting:")
    for tenant in TENANTS:
        count = while_all_wait[tenant.name]
        tell(f"  {tenant.name:8} {count:3}  {bar(count)}")
    for name in ("bakery", "florist"):
        last = len(printed) - printed[::-1].index(name)
        tell(
            f"{name}'s last page was number {last} of {len(printed)}; in order of arrival it would be the end."
        )


if __name__ == "__main__":
    asyncio.run(main())
