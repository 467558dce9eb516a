"""The pictures of the dashboard: a shop with three tenants and a bank that bears four charges at once.

    python docs/screenshots/dashboard.py

It starts a server of its own, lets the shop run for some minutes so that the charts have something to show, changes a
limit or two as people would, and photographs the pages in a real browser (see CONTRIBUTING for which).
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[1] / "examples")]

import _stage  # noqa: E402 (the examples' server of their own)

from penstock import Client, Priority, Worker, activity, workflow  # noqa: E402
from tests.support.browser import Theme, start_browser  # noqa: E402

SECONDS = 100
TENANTS = {"acme": (5, 110), "globex": (2, 60), "initech": (1, 40), "umbrella": (1, 30)}
"""The weight of each, and how many orders it begins with."""
WIDTH, HEIGHT = 1280, 760
_NUMBERS = count(48_001)
PICTURES: tuple[tuple[str, Theme, str], ...] = (
    ("queue", "light", "/queues/payments"),
    ("overview", "dark", ""),
    ("why", "light", "/why/{waiting}"),
    ("limits", "light", "/limits"),
)


@activity.defn
async def charge_card(order: str) -> str:
    await asyncio.sleep(random.uniform(1.5, 5))
    return order


@activity.defn
async def render_invoice(order: str) -> str:
    await asyncio.sleep(random.uniform(0.2, 0.9))
    return order


@workflow.defn(name="shop.order")
class ShopOrder:
    @workflow.run
    async def run(self, key: str) -> str:
        limit = timedelta(minutes=5)
        await workflow.execute_activity(
            charge_card, args=[key], task_queue="payments", start_to_close_timeout=limit
        )
        await workflow.execute_activity(
            render_invoice, args=[key], task_queue="invoices", start_to_close_timeout=limit
        )
        return key


@workflow.defn(name="shop.export")
class LedgerExport:
    """Asks for a type that no worker runs."""

    @workflow.run
    async def run(self, day: str) -> str:
        return await workflow.execute_activity(
            "export_ledger",
            args=[day],
            task_queue="exports",
            start_to_close_timeout=timedelta(hours=1),
            result_type=str,
        )


async def _order(client: Client, tenant: str, weight: float) -> None:
    name = f"order-{next(_NUMBERS)}"
    priority = Priority(fairness_key=tenant, fairness_weight=weight)
    await client.start_workflow(ShopOrder.run, tenant, id=name, task_queue="orders", priority=priority)


async def _shop(client: Client) -> None:
    """Orders without end: many at first, then about as many as the bank bears."""
    for number in range(1, 5):
        await client.start_workflow(
            LedgerExport.run, f"day-{number}", id=f"ledger-2026-11-{number:02}", task_queue="orders"
        )
    for tenant, (weight, orders) in TENANTS.items():
        for _ in range(orders):
            await _order(client, tenant, weight)
    while True:
        tenant = random.choices([*TENANTS], [5, 3, 2, 1])[0]
        await _order(client, tenant, TENANTS[tenant][0])
        await asyncio.sleep(random.uniform(0.6, 1.4))


async def _command(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", *words, stdout=asyncio.subprocess.DEVNULL
    )
    assert await process.wait() == 0, words


@asynccontextmanager
async def _running(client: Client) -> AsyncIterator[None]:
    async with (
        Worker(client, task_queue="orders", workflows=[ShopOrder, LedgerExport], identity="orders-1"),
        Worker(
            client,
            task_queue="payments",
            activities=[charge_card],
            max_concurrent_activity_tasks=8,
            identity="pay-1",
        ),
        Worker(
            client,
            task_queue="invoices",
            activities=[render_invoice],
            max_concurrent_activity_tasks=8,
            identity="pdf-1",
        ),
    ):
        shop = asyncio.create_task(_shop(client))
        yield
        shop.cancel()
        await asyncio.gather(shop, return_exceptions=True)


async def _signed_in(browser: Browser, url: str, token: str, theme: Theme) -> Page:
    context = await browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme=theme,
        reduced_motion="reduce",
        timezone_id="UTC",
    )
    page = await context.new_page()
    await page.goto(f"{url}/ui/sign-in")
    await page.get_by_label("Your name").fill("ops-on-call")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.goto(f"{url}/ui/queues/payments")
    return page


async def _lower_the_cap(browser: Browser, url: str, token: str) -> None:
    page = await _signed_in(browser, url, token, "light")
    await page.get_by_role("button", name="Change the cap…").click()
    await page.locator("#f-to").fill("4")
    await page.get_by_label("Reason").fill("the bank is slow, halve the charges")
    await page.get_by_role("button", name="Apply to payments").click()
    await page.locator("#toast").get_by_text("the cap is 4").wait_for()
    await page.context.close()


async def _photograph(browser: Browser, url: str, token: str) -> None:
    for name, theme, path in PICTURES:
        page = await _signed_in(browser, url, token, theme)
        waiting = await page.locator("#waiting tbody tr").nth(7).get_attribute("id") or ""
        await page.goto(f"{url}/ui{path.format(waiting=waiting.removeprefix('wait-'))}")
        await page.wait_for_timeout(2_500)
        await page.screenshot(path=HERE / f"dashboard-{name}-{theme}.png")
        await page.context.close()


async def main() -> None:
    with _stage.own_server() as (url, token):
        _stage._point_at(url, token)
        async with await Client.connect() as client, _running(client):
            limits = ("task-queue", "limits", "set", "payments", "--max-active-leases")
            await _command(*limits, "8", "--reason", "as the contract says")
            await _command(
                "budget-group", "set", "bank", "--max-active-leases", "6", "--reason", "contract 2026"
            )
            await _command("task-queue", "limits", "set", "payments", "--dispatch-budget-group", "bank")
            await asyncio.sleep(SECONDS / 3)
            async with async_playwright() as driver:
                browser = await start_browser(driver)
                await _lower_the_cap(browser, url, token)
                await asyncio.sleep(SECONDS * 2 / 3)
                await _photograph(browser, url, token)


if __name__ == "__main__":
    asyncio.run(main())
