"""The dashboard in a real browser: its pages in both themes and on a phone, and what people do there."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from tests.support import live
from tests.support.browser import PHONE, Theme, WatchedBrowsing, assert_accessible, assert_fits, assert_tree

QUEUE = "payments"
GOLDEN = Path(__file__).parent / "golden"
VOLATILE = {
    r"(?:in )?(?:\d[\d.]* (?:ms|s|min|h|d)\b ?)+(?:ago)?": "DURATION",
    r"\d+ \w\w\w \d\d:\d\d|\d\d:\d\d:\d\d(?:\.\d+)?": "CLOCK",
    r"\b[0-9a-f]{28}(?:-\d+)?": "ID",
    r"DURATION(?:–|, DURATION) ?": "DURATION– ",
    r'cell "(?:DURATION– |–)"': 'cell "–"',
    r"Server id: .*|server [\w-]+\.": "SERVER",
    r"(?:oldest wait|Oldest wait, seconds)[^\n]*": "CHART",
    r"(?m)^.*(?:img \"|figure|term|definition|\d /min).*\n": "",
    r"(?m)^.*(?:heading \"(?:Waiting|In and out|Running)\"|paragraph: \"?\d).*\n": "",
}
"""What differs between two runs, or follows from how long ago the server was furnished."""
LASTING = {"DW_WORKER_STALE_AFTER_SECONDS": "3600"}
"""On a busy machine a worker that is silent for a minute would be gone before a story ends, and hold its gate."""
FRESH_S, TRIES_MAX = 20, 10
"""How long after its furnishing a server shows the rates, shares and workers of that moment."""
PAGES = (
    "",
    "/queues",
    f"/queues/{QUEUE}",
    "/why/charge-3",
    "/workers/render-1",
    "/limits",
    "/changes",
    "/system",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.LiveServer]:
    """A server with a queue whose cap binds: one task of four runs."""
    folder: Path = tmp_path_factory.mktemp("dashboard")
    url = f"sqlite:///{folder / 'penstock.db'}"
    with live.running(live.server(folder, url, settings=LASTING)) as (started,):
        _furnish(started)
        yield started


def _register(server: live.LiveServer) -> None:
    """The worker, which is stale a minute later."""
    worker = {
        "worker_id": "render-1",
        "task_queue": QUEUE,
        "runtime": "python",
        "supported_activity_types": ["charge"],
        "max_concurrent_activity_tasks": 4,
    }
    _call(server, "POST", "/api/worker/register", worker, "worker")


def _furnish(server: live.LiveServer) -> None:
    _register(server)
    for number, key in enumerate(("acme", "acme", "globex", "initech")):
        body = {
            "activity_id": f"charge-{number}",
            "activity_type": "charge",
            "task_queue": QUEUE,
            "fairness_key": key,
            "start_to_close_timeout_ms": 3_600_000,
        }
        _call(server, "POST", "/api/activities", body)
    _set_cap(server, 1)
    _poll(server)


def _set_cap(server: live.LiveServer, most: int) -> None:
    cap = {"max_active_leases_per_queue": most, "reason": "the bank is slow", "expires_in_seconds": 36_000}
    _call(server, "PATCH", f"/api/task-queues/{QUEUE}/limits", cap)


def _poll(server: live.LiveServer) -> None:
    poll = {"worker_id": "render-1", "task_queue": QUEUE, "timeout_seconds": 0}
    _call(server, "POST", "/api/worker/activity-tasks/poll", poll, "worker")


def _call(server: live.LiveServer, method: str, path: str, body: object, role: str = "operator") -> None:
    headers = live.headers(role) | {"Content-Type": "application/json"}
    request = urllib.request.Request(
        server.url + path, json.dumps(body).encode(), {k: str(v) for k, v in headers.items()}, method=method
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


async def _signed_in(
    browsing: WatchedBrowsing, server: live.LiveServer, *, theme: Theme = "light", width: int = 1366
) -> Page:
    page = await browsing.open(f"{server.url}/ui/sign-in", theme=theme, width=width)
    await page.get_by_label("Your name").fill("ops-on-call")
    await page.get_by_label("Token").fill(live.TOKENS["DW_ADMIN_TOKEN"])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_pages_are_accessible_and_keep_to_their_policy(
    browsing: WatchedBrowsing, server: live.LiveServer, theme: Theme
) -> None:
    sign_in = await browsing.open(f"{server.url}/ui/sign-in", theme=theme)
    await assert_accessible(sign_in)
    page = await _signed_in(browsing, server, theme=theme)
    for path in PAGES:
        await page.goto(f"{server.url}/ui{path}")
        await expect(page.locator("#live-state")).to_have_text("Live")
        await assert_accessible(page)


@pytest.mark.parametrize("path", ["/queues", f"/queues/{QUEUE}", "/why/charge-3", "/limits", "/system"])
async def test_what_a_screen_reader_reads_is_what_was_agreed(
    browsing: WatchedBrowsing, tmp_path: Path, path: str
) -> None:
    golden = GOLDEN / f"{path.strip('/').replace('/', '-')}.yaml"
    for number in range(TRIES_MAX):
        url = f"sqlite:///{tmp_path}/{number}.db"
        with live.running(live.server(tmp_path, url, settings=LASTING)) as (server,):
            furnished = time.monotonic()
            _furnish(server)
            async with browsing:
                page = await _signed_in(browsing, server)
                await page.goto(f"{server.url}/ui{path}")
                try:
                    await assert_tree(page.locator("main"), golden, volatile=VOLATILE)
                except AssertionError:
                    if time.monotonic() - furnished < FRESH_S or number == TRIES_MAX - 1:
                        raise
                else:
                    return


async def test_no_page_scrolls_sideways_on_a_phone(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    page = await _signed_in(browsing, server, width=PHONE)
    for path in PAGES:
        await page.goto(f"{server.url}/ui{path}")
        await assert_fits(page)


async def test_a_dialog_is_accessible_and_shows_the_effect_as_one_types(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    page = await _signed_in(browsing, server)
    await page.goto(f"{server.url}/ui/queues/{QUEUE}")
    await page.get_by_role("button", name="Change the cap…").click()
    dialog = page.get_by_role("dialog", name=f"Change the cap of {QUEUE}")
    await dialog.get_by_label(re.compile("Leases")).fill("0")
    await expect(dialog).to_contain_text("Nothing more is dispatched")
    await assert_accessible(page)
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()


async def test_raising_the_cap_with_the_keyboard_opens_the_gate_before_ones_eyes(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    page = await _signed_in(browsing, server)
    _register(server)
    await page.keyboard.press("g")
    await page.keyboard.press("q")
    await expect(page.get_by_role("heading", name="Queues", level=1)).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    gate = page.locator("#gates li.gate[data-binds]")
    await expect(gate).to_contain_text("Queue")
    await page.get_by_role("button", name="Change the cap…").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#f-to")).to_be_focused()
    await page.keyboard.press("Control+A")
    await page.keyboard.type("3")
    await page.get_by_label("Reason").press_sequentially("it has recovered")
    await page.keyboard.press("Enter")
    await expect(page.locator("#toast")).to_contain_text("the cap is 3")
    await expect(gate).to_have_count(0)
    await expect(page.locator("#gates")).to_contain_text("1 of 3")
    await expect(page.locator("#queue-changes")).to_contain_text("ops-on-call: “it has recovered”")
    _set_cap(server, 1)
    await expect(gate).to_contain_text("Queue")


async def _open_cap_dialog(page: Page, server: live.LiveServer) -> Locator:
    await page.goto(f"{server.url}/ui/queues/{QUEUE}")
    await page.get_by_role("button", name="Change the cap…").click()
    return page.get_by_role("dialog", name=f"Change the cap of {QUEUE}")


async def test_a_session_that_ends_in_the_middle_of_a_change_loses_nothing_that_was_typed(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    browsing.expect_trouble("401")
    page = await _signed_in(browsing, server)
    dialog = await _open_cap_dialog(page, server)
    await dialog.get_by_label(re.compile("Leases")).fill("2")
    await dialog.get_by_label("Reason").fill("a reason that took a while to write")
    elsewhere = await browsing.open(f"{server.url}/ui", beside=page)
    await elsewhere.get_by_role("button", name="Sign out").click()
    await expect(elsewhere.get_by_label("Token")).to_be_visible()
    await dialog.get_by_role("button", name=f"Apply to {QUEUE}").click()
    again = page.get_by_role("dialog", name="Your session has ended")
    await expect(again).to_be_visible()
    await assert_accessible(page)
    await again.get_by_label("Token").fill(live.TOKENS["DW_ADMIN_TOKEN"])
    await again.get_by_role("button", name="Sign in").click()
    await expect(again).to_be_hidden()
    await expect(dialog.get_by_label("Reason")).to_have_value("a reason that took a while to write")
    await dialog.get_by_role("button", name=f"Apply to {QUEUE}").click()
    await expect(page.locator("#toast")).to_contain_text("the cap is 2")
    _set_cap(server, 1)


async def test_the_second_of_two_people_sees_what_moved_and_a_change_is_undone(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    browsing.expect_trouble("409")
    page = await _signed_in(browsing, server)
    dialog = await _open_cap_dialog(page, server)
    await dialog.get_by_label(re.compile("Leases")).fill("3")
    await dialog.get_by_label("Reason").fill("month end")
    _set_cap(server, 2)
    apply = dialog.get_by_role("button", name=f"Apply to {QUEUE}")
    await apply.click()
    await expect(dialog.get_by_role("alert")).to_contain_text("operator changed max running: 1 → 2")
    await expect(dialog.get_by_label("Reason")).to_have_value("month end")
    await apply.click()
    await expect(page.locator("#toast")).to_contain_text("the cap is 3")
    await page.locator("#queue-changes").get_by_role("button", name="Undo: max running back to 2").click()
    back = page.get_by_role("dialog", name=f"Change the cap of {QUEUE}")
    await expect(back.get_by_label(re.compile("Leases"))).to_have_value("2")
    await back.get_by_role("button", name=f"Apply to {QUEUE}").click()
    await expect(page.locator("#gates")).to_contain_text("1 of 2")
    _set_cap(server, 1)


async def test_the_palette_acts_on_the_row_that_is_marked(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    page = await _signed_in(browsing, server)
    await page.goto(f"{server.url}/ui/limits")
    row = page.locator("#limit-rows tr", has=page.get_by_role("link", name=QUEUE, exact=True))
    for _ in range(await page.locator("#limit-rows tbody tr").count()):
        await page.keyboard.press("j")
        if await row.get_attribute("data-at") is not None:
            break
    await page.keyboard.press("Control+k")
    await page.keyboard.type("change leases")
    await expect(page.locator("#acts-here button")).to_have_count(1)
    await assert_accessible(page)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name=f"Change the cap of {QUEUE}")).to_be_visible()


async def test_the_palette_resolves_a_pasted_id(browsing: WatchedBrowsing, server: live.LiveServer) -> None:
    page = await _signed_in(browsing, server)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("charge-3")
    await expect(page.get_by_role("link", name=re.compile("Why does charge-3 wait"))).to_be_visible()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("charge-3")


async def test_the_switch_of_the_theme_is_kept(browsing: WatchedBrowsing, server: live.LiveServer) -> None:
    page = await _signed_in(browsing, server)
    await page.get_by_role("button", name="Switch between light and dark").click()
    await page.goto(f"{server.url}/ui/queues")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_page_goes_on_after_its_server_has_restarted(
    browsing: WatchedBrowsing, tmp_path: Path
) -> None:
    browsing.expect_trouble("ERR_|Failed to load|Failed to fetch|network")
    with live.running(live.server(tmp_path, f"sqlite:///{tmp_path / 'penstock.db'}")) as (server,):
        _furnish(server)
        page = await _signed_in(browsing, server)
        await page.goto(f"{server.url}/ui/queues/{QUEUE}")
        await expect(page.locator("#live-state")).to_have_text("Live")
        server.stop()
        await expect(page.locator("#live-state")).to_contain_text("Stale")
        await expect(page.locator("#queue-stats .advice")).to_be_hidden()
        server.start()
        _set_cap(server, 2)
        await expect(page.locator("#live-state")).to_have_text("Live")
        await expect(page.locator("#gates")).to_contain_text("of 2")
