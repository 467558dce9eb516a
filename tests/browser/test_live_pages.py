"""A page whose browser, connection or scripts are slow: nothing that is pressed is lost, and news are the newest."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.support import live
from tests.support.browser import WatchedBrowsing

LIVE = "**/*_live=1*"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.LiveServer]:
    folder: Path = tmp_path_factory.mktemp("live-pages")
    with live.running(live.server(folder, f"sqlite:///{folder / 'penstock.db'}")) as (started,):
        yield started


async def _signed_in(browsing: WatchedBrowsing, server: live.LiveServer) -> Page:
    page = await browsing.open(f"{server.url}/ui/sign-in")
    await page.get_by_label("Your name").fill("ops-on-call")
    await page.get_by_label("Token").fill(live.TOKENS["DW_ADMIN_TOKEN"])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    return page


async def test_what_is_pressed_before_the_page_is_ready_is_done_when_it_is(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    """On a busy machine a dialog never came: its button had been pressed before the scripts were loaded."""
    page = await _signed_in(browsing, server)
    is_pressed = asyncio.Event()

    async def hold(route: Route) -> None:
        await is_pressed.wait()
        await route.continue_()

    await page.route("**/htmx.js", hold)
    await page.goto(f"{server.url}/ui/limits", wait_until="commit")
    await page.locator("#limit-rows button").first.click()
    is_pressed.set()
    await expect(page.locator("#dialog [type=submit]")).to_be_visible()
    await page.keyboard.press("Escape")
    is_pressed.clear()
    await page.goto(f"{server.url}/ui/limits", wait_until="commit")
    await expect(page.get_by_role("heading", name="Limits", level=1)).to_be_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("q")
    await expect(page.get_by_role("heading", name="Queues", level=1)).to_be_visible()
    is_pressed.set()


async def test_a_page_whose_stream_is_refused_at_first_comes_alive_by_itself(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    browsing.expect_trouble("503")
    page = await _signed_in(browsing, server)
    answers = itertools.count()

    async def answer(route: Route) -> None:
        number = next(answers)
        if number == 0:
            await route.fulfill(status=503, body="busy", content_type="text/html")
        elif number == 1:
            paused = "event: paused\nid: 1\nretry: 50\ndata: too many\n\n"
            await route.fulfill(status=200, body=paused, content_type="text/event-stream")
        else:
            await route.continue_()

    await page.route(LIVE, answer)
    await page.goto(f"{server.url}/ui/system")
    shown = await page.locator("#asof").text_content()
    await expect(page.locator("#asof")).not_to_have_text(shown or "")
    await expect(page.locator("#live-state")).to_have_text("Live")
    assert await page.locator("#problem").text_content() == ""


async def test_a_slow_browser_shows_the_newest_state_and_not_its_backlog(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    """It showed what had been a minute ago, later and later, and called that live."""
    page = await _signed_in(browsing, server)
    answers = itertools.count()

    async def answer(route: Route) -> None:
        in_time, late = _news(100_000, "asof", "in time"), _news(97_000, "asof", "three seconds late")
        body = in_time + late if next(answers) == 0 else _news(5, "toast", "connected again")
        await route.fulfill(status=200, body=body, content_type="text/event-stream")

    await page.route(LIVE, answer)
    await page.goto(f"{server.url}/ui/system")
    await expect(page.locator("#toast")).to_have_text("connected again")
    await expect(page.locator("#asof")).to_have_text("in time")


def _news(made_ms: int, panel: str, text: str) -> str:
    html = f'<hx-partial hx-target="#{panel}" hx-swap="innerMorph">{text}</hx-partial>'
    return f"id: {made_ms}\ndata: {html}\n\n"


async def test_a_request_without_an_answer_says_so(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    browsing.expect_trouble("htmx:error|ERR_FAILED")
    page = await _signed_in(browsing, server)
    await page.goto(f"{server.url}/ui/limits")
    await page.route("**/limits/change*", lambda route: route.abort())
    await page.locator("#limit-rows button").first.click()
    await expect(page.locator("#problem")).to_contain_text("The server did not answer. Try again.")
