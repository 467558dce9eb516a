"""What people do on the pages of runs in a real browser, with a real worker that is killed; trees of five pages."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from penstock.server.dashboard.pages import PAGES as ALL_PAGES
from tests.browser.test_change_sets import PAGES as CHANGE_SET_PAGES
from tests.browser.test_dashboard import PAGES as OTHER_PAGES
from tests.support import live
from tests.support.browser import (
    DESKTOP,
    PHONE,
    Theme,
    WatchedBrowsing,
    assert_accessible,
    assert_fits,
    assert_tree,
)

GOLDEN = Path(__file__).parent / "golden"
PAGES = (
    "/runs",
    "/runs/order-1",
    "/runs/order-1/{run}/debug",
    "/runs/order-1/{run}/streams/tokens",
    "/workers",
    "/tasks",
    "/queues/bank/keys",
    "/tasks/charge-1",
    "/schedules",
    "/schedules/nightly",
)
VOLATILE = {
    r"\d{2}:\d{2}:\d{2}(\.\d{3})?": "<time>",
    r"\b\d{1,2} [A-Z][a-z]{2} \d{2}:\d{2}\b": "<time>",
    r"(in )?[\d.,]+ (ms|s|min|h|d)\b( [\d.]+ (ms|s|min|h)\b)?( ago)?": "<span>",
    r"[0-9a-f]{28}": "<id>",
    r"\+<span>": "<mark>",
    r"\b\d+%": "<share>",
    r"from=\d+&to=\d+": "<window>",
}

SHOP = """
import asyncio, sys
from datetime import timedelta
from penstock import Client, Worker, activity, workflow

@activity.defn(auto_heartbeat=True)
async def charge(order: str) -> str:
    await asyncio.sleep(3600 if sys.argv[1] == "slow" else 0)
    return "charged"

@workflow.defn(name="orders")
class Orders:
    @workflow.run
    async def run(self, order: str) -> str:
        return await workflow.execute_activity(charge, order, heartbeat_timeout=timedelta(seconds=2))

async def main():
    async with await Client.connect() as client:
        async with Worker(client, task_queue="shop", workflows=[Orders], activities=[charge], identity=sys.argv[1]):
            await asyncio.Event().wait()

asyncio.run(main())
"""


APPROVALS = """
import asyncio
from penstock import Client, Worker, workflow

@workflow.defn(name="approvals")
class Approvals:
    def __init__(self) -> None:
        self.by = ""

    @workflow.run
    async def run(self) -> str:
        await workflow.wait_condition(lambda: bool(self.by))
        return f"approved by {self.by}"

    @workflow.signal
    def approve(self, by: str) -> None:
        self.by = by

async def main():
    async with await Client.connect() as client:
        async with Worker(client, task_queue="office", workflows=[Approvals]):
            await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[live.LiveServer]:
    """A server with three runs, a task and a schedule, and no worker."""
    folder: Path = tmp_path_factory.mktemp("runs")
    with live.running(live.server(folder, f"sqlite:///{folder / 'penstock.db'}")) as (started,):
        for number in (1, 2, 3):
            start(started, f"order-{number}")
        task = {"activity_id": "charge-1", "activity_type": "charge", "task_queue": "bank"}
        call(started, "POST", "/api/activities", task)
        schedule = {
            "schedule_id": "nightly",
            "spec": {"cron_expressions": ["0 2 * * *"]},
            "action": {"workflow_type": "orders", "task_queue": "shop"},
        }
        call(started, "POST", "/api/schedules", schedule)
        call(started, "POST", "/api/schedules/nightly/pause", {"note": "the ledger moves"})
        said = {"items": [{"payload": "The bill "}, {"payload": "is "}]}
        call(started, "POST", f"/api/workflows/order-1/runs/{run_id(started)}/streams/tokens/items", said)
        yield started


def start(server: live.LiveServer, workflow_id: str) -> None:
    body = {
        "workflow_id": workflow_id,
        "workflow_type": "orders",
        "task_queue": "shop",
        "input": [workflow_id],
    }
    call(server, "POST", "/api/workflows", body)


def run_id(server: live.LiveServer) -> str:
    return str(call(server, "GET", "/api/workflows/order-1")["run_id"])


def call(server: live.LiveServer, method: str, path: str, body: object = None) -> dict[str, Any]:
    headers = {k: str(v) for k, v in live.headers("operator").items()} | {"Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, content, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


async def signed_in(
    browsing: WatchedBrowsing, server: live.LiveServer, *, theme: Theme = "light", width: int = 1366
) -> Page:
    page = await browsing.open(f"{server.url}/ui/sign-in", theme=theme, width=width)
    await page.get_by_label("Your name").fill("ops-on-call")
    await page.get_by_label("Token").fill(live.TOKENS["DW_ADMIN_TOKEN"])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    return page


def test_every_page_with_an_address_of_its_own_is_looked_at() -> None:
    shapes = [re.sub(r"\{\w+\}", "[^/]+", each.path) for each in ALL_PAGES if not each.is_fragment]
    looked_at = [each or "/" for each in (*PAGES, *OTHER_PAGES, *CHANGE_SET_PAGES)]
    left_out = [shape for shape in shapes if not any(re.fullmatch(shape, each) for each in looked_at)]
    assert left_out == ["/runs/[^/]+/[^/]+"], "the page of a run has two addresses"


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_the_pages_of_runs_are_accessible(
    browsing: WatchedBrowsing, server: live.LiveServer, theme: Theme
) -> None:
    page = await signed_in(browsing, server, theme=theme)
    run = run_id(server)
    for path in PAGES:
        await page.goto(f"{server.url}/ui{path.format(run=run)}")
        await assert_accessible(page)


async def test_the_pages_of_runs_fit_a_phone(browsing: WatchedBrowsing, server: live.LiveServer) -> None:
    page = await signed_in(browsing, server, width=PHONE)
    run = run_id(server)
    for path in PAGES:
        await page.goto(f"{server.url}/ui{path.format(run=run)}")
        await assert_fits(page)


@pytest.mark.parametrize(
    "path", ["/runs?q=order-", "/runs/order-1", "/workers", "/schedules", "/tasks/charge-1"]
)
async def test_the_accessibility_tree_of_a_page_is_as_it_was(
    browsing: WatchedBrowsing, server: live.LiveServer, path: str
) -> None:
    page = await signed_in(browsing, server)
    await page.goto(f"{server.url}/ui{path}")
    name = path.partition("?")[0].strip("/").replace("/", "-")
    await assert_tree(page.locator("main"), GOLDEN / f"{name}.yaml", volatile=VOLATILE)


async def test_hostile_names_and_huge_payloads_are_text_that_fits_a_phone_and_a_desktop(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    names = ("<img src=x onerror=alert(1)>", "مرحبا بالعالم", "w" * 128)
    queue = "q" * 255
    for name in names:
        body = {"workflow_id": name, "workflow_type": f"<b>{name}</b>", "task_queue": queue}
        call(
            server, "POST", "/api/workflows", body | {"input": ["x" * 2_000_000] if name == names[0] else []}
        )
    page = await signed_in(browsing, server, width=PHONE)
    paths = [f"/runs/{quote(name, safe='')}" for name in names] + [f"/why/{quote(names[0], safe='')}"]
    for path in ("/runs?q=w", "/queues", f"/queues/{queue}", "/limits", *paths):
        await page.goto(f"{server.url}/ui{path}")
        for width in (PHONE, DESKTOP):
            await page.set_viewport_size({"width": width, "height": 900})
            await assert_fits(page)
    await page.goto(f"{server.url}/ui{paths[0]}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(names[0])
    await expect(page.locator("#run-payloads")).to_contain_text("The first 16,000 of 2,000,0")
    for name in names:
        call(server, "POST", f"/api/workflows/{quote(name, safe='')}/terminate", {})


async def test_a_stream_grows_before_ones_eyes(browsing: WatchedBrowsing, server: live.LiveServer) -> None:
    page = await signed_in(browsing, server)
    await page.goto(f"{server.url}/ui/runs/order-2")
    other = str(call(server, "GET", "/api/workflows/order-2")["run_id"])
    items = f"/api/workflows/order-2/runs/{other}/streams/tokens/items"
    call(server, "POST", items, {"items": [{"payload": "The bill "}, {"payload": "is "}]})
    await page.locator("#run-streams").get_by_role("link", name="tokens").click()
    await expect(page.locator("#stream-text pre")).to_have_text("The bill is ")
    call(server, "POST", items, {"items": [{"payload": "paid."}]})
    await expect(page.locator("#stream-text pre")).to_have_text("The bill is paid.")
    await expect(page.locator("#stream-head")).to_contain_text("3 not yet read")


async def test_a_query_is_completed_and_finds_runs(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    page = await signed_in(browsing, server)
    await page.goto(f"{server.url}/ui/runs")
    await page.keyboard.press("/")
    await page.keyboard.type("WorkflowId = 'order-2' AND Sta")
    await page.locator("#suggest[data-for$='AND Sta']").get_by_role("button", name="Status").click()
    await expect(page.locator("#query")).to_have_value("WorkflowId = 'order-2' AND Status ")
    await page.keyboard.type("= 'open'")
    await page.keyboard.press("Enter")
    await expect(page.locator("#run-list tbody tr")).to_have_count(1)
    await expect(page.locator("#run-list")).to_contain_text("order-2")
    await page.go_back()
    await expect(page.locator("#run-list tbody tr")).not_to_have_count(1)


async def test_runs_are_selected_with_the_keyboard_and_cancelled_after_their_effect_was_shown(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    for number in (7, 8):
        start(server, f"bulk-{number}")
    page = await signed_in(browsing, server)
    await page.goto(f"{server.url}/ui/runs?q=bulk-")
    for key in ("j", "x", "j", "x"):
        await page.keyboard.press(key)
    await expect(page.locator("#bulk")).to_contain_text("2 selected")
    await page.locator("#bulk").get_by_role("button", name="Terminate…").click()
    dialog = page.get_by_role("dialog", name="Terminate runs")
    await expect(dialog).to_contain_text("2 open runs")
    await assert_accessible(page)
    await dialog.get_by_label("Reason").fill("wrong prices")
    await page.keyboard.press("Enter")
    await expect(page.locator("#toast")).to_contain_text("2 runs were terminated.")
    await page.get_by_role("link", name="Look again").click()
    await expect(page.locator("#run-list")).to_contain_text("terminated")


async def test_one_event_opens_as_json_and_closes_with_escape(
    browsing: WatchedBrowsing, server: live.LiveServer
) -> None:
    page = await signed_in(browsing, server)
    await page.goto(f"{server.url}/ui/runs/order-1?history=events")
    await page.get_by_role("button", name="Event 1, WorkflowStarted, as JSON").click()
    dialog = page.get_by_role("dialog", name="Event 1: WorkflowStarted")
    await expect(dialog).to_contain_text('"workflow_type": "orders"')
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()


@pytest.mark.faults
async def test_a_worker_is_killed_and_its_lease_comes_back_before_ones_eyes(
    browsing: WatchedBrowsing, tmp_path: Path
) -> None:
    program = tmp_path / "shop.py"
    program.write_text(SHOP)
    with live.running(live.server(tmp_path, f"sqlite:///{tmp_path / 'penstock.db'}")) as (server,):
        environment = dict(server.environment) | {
            "DURABLE_WORKFLOW_SERVER_URL": server.url,
            "DURABLE_WORKFLOW_AUTH_TOKEN": live.TOKENS["DW_WORKER_TOKEN"],
            "PENSTOCK_PROFILES": "/dev/null",
        }
        workers = [subprocess.Popen([sys.executable, str(program), "slow"], env=environment, cwd=tmp_path)]
        try:
            start(server, "order-1")
            async with browsing:
                page = await signed_in(browsing, server)
                await page.goto(f"{server.url}/ui/runs/order-1")
                charge = page.locator("#run-timeline tr", has_text=re.compile("charge"))
                await expect(charge.locator("rect.run")).to_have_count(1)
                workers[0].send_signal(signal.SIGKILL)
                workers[0].wait()
                workers.append(
                    subprocess.Popen([sys.executable, str(program), "quick"], env=environment, cwd=tmp_path)
                )
                await expect(page.locator("#run-head")).to_contain_text("Closed")
                await expect(charge).to_contain_text("2")
                await expect(page.locator("#run-history")).to_contain_text('"charged"')
                await assert_accessible(page)
                await _look_along_the_timeline(page)
        finally:
            for each in workers:
                each.kill()
                each.wait()


async def _look_along_the_timeline(page: Page) -> None:
    """With the keyboard alone: from span to span, to the event of one, closer, and back to the whole run."""
    await page.locator("#lanes").focus()
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#span-said")).to_contain_text("workflow tasks: ")
    await page.keyboard.press("ArrowDown")
    await expect(page.locator("#span-said")).to_contain_text("charge: ")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=re.compile("Event"))
    await expect(dialog).to_contain_text("charge")
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await page.keyboard.press("+")
    await page.wait_for_url(re.compile(r"[?&]from=\d+&to=\d+"))
    await expect(page.locator("#lanes")).to_be_focused()
    await page.keyboard.press("0")
    await page.wait_for_url(lambda url: "from=" not in url)


async def test_an_approval_is_given_and_the_run_goes_on_before_ones_eyes(
    browsing: WatchedBrowsing, tmp_path: Path
) -> None:
    program = tmp_path / "approvals.py"
    program.write_text(APPROVALS)
    with live.running(live.server(tmp_path, f"sqlite:///{tmp_path / 'penstock.db'}")) as (server,):
        environment = dict(server.environment) | {
            "DURABLE_WORKFLOW_SERVER_URL": server.url,
            "DURABLE_WORKFLOW_AUTH_TOKEN": live.TOKENS["DW_WORKER_TOKEN"],
            "PENSTOCK_PROFILES": "/dev/null",
        }
        worker = subprocess.Popen([sys.executable, str(program)], env=environment, cwd=tmp_path)
        try:
            body = {"workflow_id": "leave-1", "workflow_type": "approvals", "task_queue": "office"}
            call(server, "POST", "/api/workflows", body)
            async with browsing:
                page = await signed_in(browsing, server)
                await page.goto(f"{server.url}/ui/runs/leave-1")
                await page.get_by_role("button", name="Send approve").click()
                dialog = page.get_by_role("dialog", name="Signal leave-1")
                await expect(dialog.get_by_label("Name of the signal")).to_have_value("approve")
                await expect(dialog.get_by_label(re.compile("Arguments"))).to_have_value('[""]')
                await dialog.get_by_label(re.compile("Arguments")).fill('["Ada"]')
                await assert_accessible(page)
                await dialog.get_by_role("button", name="Send the signal").click()
                await expect(page.locator("#run-head")).to_contain_text("Closed")
                await expect(page.locator("#run-history")).to_contain_text("approved by Ada")
                await expect(page.locator("#run-asks")).to_be_hidden()
        finally:
            worker.kill()
            worker.wait()


async def test_a_link_signs_in_once_and_its_code_is_never_in_an_address(
    browsing: WatchedBrowsing, tmp_path: Path
) -> None:
    port = live.free_port()
    command = [
        sys.executable,
        "-m",
        "penstock",
        "dev",
        "--json",
        "--data-dir",
        str(tmp_path / "data"),
        "--port",
        str(port),
    ]
    clean = live.server(tmp_path, "").environment
    environment = {name: value for name, value in clean.items() if not name.startswith("DW_")}
    process = subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        link = json.loads(process.stdout.readline())["dashboard"]
        async with browsing:
            page = await browsing.open(link)
            await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
            assert "code" not in page.url
            browsing.expect_trouble("40[0-9]|Failed to load")
            again = await browsing.open(link)
            await expect(again.get_by_label("Token")).to_be_visible()
    finally:
        process.terminate()
        process.wait()
