"""Change sets in a real browser: read, approved, put off and withdrawn with the keyboard, in both themes."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from tests.support import live
from tests.support.browser import PHONE, WatchedBrowsing, assert_accessible, assert_fits

PAGES = ("/change-sets", "/change-sets/one")
"""The pages that the story looks at with axe."""


def _propose(server: live.LiveServer) -> str:
    settings: dict[str, Any] = {"queues": {"payments": {"max_active_leases": 0, "weights": {"acme": 3}}}}
    body = json.dumps({"reason": "slow database", "expires_in_seconds": 7_200} | settings).encode()
    headers = live.headers("operator") | {"Content-Type": "application/json"}
    url = f"{server.url}/api/change-sets"
    request = urllib.request.Request(url, body, {k: str(v) for k, v in headers.items()}, method="POST")
    with urllib.request.urlopen(request) as answer:
        change_set_id: str = json.loads(answer.read())["change_set_id"]
        return change_set_id


async def _signed_in(browsing: WatchedBrowsing, server: live.LiveServer) -> Page:
    page = await browsing.open(f"{server.url}/ui/sign-in", width=1366)
    await page.get_by_label("Your name").fill("ops-on-call")
    await page.get_by_label("Token").fill(live.TOKENS["DW_ADMIN_TOKEN"])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    return page


async def _act(page: Page, name: str, submit: str) -> None:
    await page.get_by_role("button", name=f"{name}…").focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    await assert_accessible(page)
    await dialog.get_by_role("button", name=submit, exact=True).focus()
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()


async def test_a_change_set_is_approved_put_off_and_withdrawn_with_the_keyboard(
    browsing: WatchedBrowsing, tmp_path: Path
) -> None:
    with live.running(live.server(tmp_path, f"sqlite:///{tmp_path / 'penstock.db'}")) as (server,):
        async with browsing:
            page = await _signed_in(browsing, server)
            await page.keyboard.press("g")
            await page.keyboard.press("h")
            await expect(page.get_by_role("heading", name="No change set yet")).to_be_visible()
            await assert_accessible(page)
            _propose(server)
            await expect(page.get_by_role("link", name="slow database")).to_be_visible()
            await page.keyboard.press("j")
            await page.keyboard.press("Enter")
            await expect(page.locator("#change-set-state")).to_contain_text(
                "It closes the task queue payments"
            )
            await assert_accessible(page)
            await page.get_by_role("button", name="Switch between light and dark").click()
            await assert_accessible(page)
            await _act(page, "Approve", "Approve")
            await expect(page.locator("#change-set-history")).to_contain_text("ops-on-call")
            await page.get_by_role("button", name="Apply…").click()
            await page.get_by_label("When, UTC").fill("2099-01-01T00:00:00Z")
            await page.keyboard.press("Enter")
            await expect(page.locator("#change-set-head")).to_contain_text("The server applies it")
            await _act(page, "Withdraw", "Withdraw")
            await expect(page.locator("#change-set-head")).to_contain_text("It is withdrawn.")
            await page.set_viewport_size({"width": PHONE, "height": 800})
            await assert_fits(page)
