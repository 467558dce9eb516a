"""What every page keeps to: its policy, its size, its escapes, and what a role may see."""

from __future__ import annotations

import hashlib
import html
import json
import re
from collections.abc import Callable
from importlib.resources import files
from urllib.parse import quote

import pytest

from penstock import assembly
from penstock.server.dashboard.assets import ASSETS
from penstock.server.dashboard.pages import PAGES
from penstock.server.dashboard.site import NAMESPACES_SHOWN
from penstock.server.dashboard.view import without_payloads
from tests.server.client import Client
from tests.server.dashboard.conftest import QUEUE
from tests.server.dashboard.visitors import Visitor

EXAMPLES = {"name": QUEUE, "key": "acme", "id": "charge-3"}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.exe",
    "{{ 7 * 7 }}",
    "a/b?c#d%2Fe",
    "é" * 100 + "-" * 55,
    "<hx-partial hx-target=body>",
)


def _example(path: str) -> str:
    target = re.sub(r"{(\w+)}", lambda found: EXAMPLES[found[1]], path)
    return "/ui" + ("/limits/change?scope=cluster" if target == "/limits/change" else target.rstrip("/"))


OURS = [each for each in PAGES if set(re.findall(r"{(\w+)}", each.path)) <= EXAMPLES.keys()]


@pytest.mark.parametrize("path", [each.path for each in OURS])
async def test_a_page_has_no_code_or_style_of_its_own_and_names_no_other_host(
    api: Client, somebody: Callable[[], Visitor], path: str
) -> None:
    admin = somebody()
    await admin.sign_in("admin-secret")
    reply = await admin.get(_example(path))
    text = reply.raw.decode()
    assert reply.status == 200, text[-800:]
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["cache-control"] == "no-store"
    assert not re.search(r"<[^>]+\son\w+=", text), "a handler in an attribute"
    assert " style=" not in text
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert not re.search(r"(?:src|href|action)=\"(?:https?:)?//", text)
    assert len(reply.raw) <= 250_000


@pytest.mark.parametrize("path", [each.path for each in OURS if each.is_live and not each.is_fragment])
async def test_each_live_panel_has_its_place_on_the_page(
    api: Client, somebody: Callable[[], Visitor], path: str
) -> None:
    """The stream replaces elements by their id: a panel without one, or with two, would be lost."""
    from penstock.server.dashboard import page_templates

    admin = somebody()
    await admin.sign_in("admin-secret")
    text = await admin.page(_example(path))
    ids = re.findall(r'\sid="([^"]+)"', text)
    assert len(ids) == len(set(ids)), sorted(each for each in ids if ids.count(each) > 1)
    page = next(each for each in PAGES if each.path == path)
    blocks = page_templates._environment().get_template(page.template).blocks
    names = [name.removeprefix("live_").replace("_", "-") for name in blocks if name.startswith("live_")]
    assert names, "a live page has live panels"
    assert set(names) <= set(ids)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_is_text_on_every_page(api: Client, operator: Visitor, name: str) -> None:
    body = {
        "activity_id": "hostile",
        "activity_type": name[:100],
        "task_queue": name,
        "fairness_key": name[:30],
    }
    (await api.post("/api/activities", body)).expect(201)
    own = f"/ui/queues/{quote(name, safe='')}"
    for target in ("/ui", "/ui/queues", own, "/ui/limits", "/ui/why/hostile", f"/ui/find?q={quote(name)}"):
        text = await operator.page(target)
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "<hx-partial hx-target=body>" not in text
        read = re.sub(r'\s(?:href|data-copy|data-field|data-points|hx-[a-z:]+|value)="[^"]*"', "", text)
        found = read.find("\u202e")
        assert found < 0, read[found - 80 : found + 80]


async def test_an_id_of_another_namespace_is_not_found(api: Client, operator: Visitor) -> None:
    (await api.post("/api/namespaces", {"name": "elsewhere"}, role="admin")).expect(201)
    reply = await operator.get("/ui/why/charge-3?namespace=elsewhere")
    assert reply.status == 404
    assert b"charge-3" in reply.raw
    assert (await operator.get("/ui/queues?namespace=nowhere")).status == 404


async def test_a_viewer_reads_queues_and_is_told_who_may_see_the_rest(api: Client, viewer: Visitor) -> None:
    text = await viewer.page(f"/ui/queues/{QUEUE}")
    assert "audit-bot" in text
    assert 'aria-disabled="true"' in text, "actions stay visible, with the reason"
    assert 'hx-get="/ui/queues/payments/cap' not in text
    assert "4242" not in text
    system = await viewer.page("/ui/system")
    assert "forbidden" in system
    assert "needs admin" in system


async def test_a_viewer_token_opens_no_route_of_the_api(api: Client) -> None:
    reply = await api.get("/api/task-queues", headers={"authorization": "Bearer viewer-secret"})
    reply.expect(403, "forbidden")


def test_payloads_are_removed_wherever_they_are() -> None:
    body = {
        "input": {"card": 1},
        "events": [{"result": "x", "type": "t", "deep": {"failure": {"message": "m"}}}],
    }
    assert without_payloads(body) == {
        "input": None,
        "events": [{"result": None, "type": "t", "deep": {"failure": None}}],
    }


async def test_the_palette_finds_pages_queues_and_pasted_ids(api: Client, operator: Visitor) -> None:
    assert "/ui/limits" in await operator.page("/ui/find?q=lim")
    assert "/ui/queues/payments" in await operator.page("/ui/find?q=paym")
    found = await operator.page("/ui/find?q=charge-3")
    assert "/ui/why/charge-3" in found


async def test_an_error_is_a_page_for_people_and_a_fragment_for_htmx(operator: Visitor) -> None:
    page = await operator.get("/ui/nothing")
    fragment = await operator.get("/ui/nothing", **{"hx-request": "true"})
    assert (page.status, fragment.status) == (404, 404)
    assert b"<!doctype html>" in page.raw
    assert b"<!doctype html>" not in fragment.raw
    assert page.headers["content-type"] == "text/html; charset=utf-8"


async def test_a_page_that_is_never_live_ignores_the_wish(operator: Visitor) -> None:
    assert "/ui/limits" in await operator.page("/ui/find?q=limits&_live=1")


async def test_a_foreign_host_header_is_refused(somebody: Callable[[], Visitor]) -> None:
    assert (await somebody().get("/ui/sign-in", host="evil.example")).status == 421


async def test_files_are_kept_for_ever_and_compressed(somebody: Callable[[], Visitor]) -> None:
    visitor = somebody()
    address = ASSETS.url("base.css")
    plain = await visitor.get(address)
    packed = await visitor.get(address, **{"accept-encoding": "gzip"})
    assert "immutable" in plain.headers["cache-control"]
    assert len(packed.raw) * 3 < len(plain.raw)
    assert (await visitor.get(address, **{"if-none-match": plain.headers["etag"]})).status == 304
    assert (await visitor.get("/ui/static/0000000000000000/base.css")).status == 404


async def test_htmx_and_its_streams_come_in_one_file(operator: Visitor) -> None:
    """On a busy machine a page was never live: htmx had read it before the script for streams came."""
    text = await operator.page("/ui/queues")
    scripts = [address for address in re.findall(r'<script src="([^"]+)"', text) if "htmx" in address]
    assert scripts == [ASSETS.url("htmx.js")]
    code = (await operator.get(scripts[0])).raw.decode()
    assert 0 < code.index('this.version="4.') < code.index('registerExtension("sse"')


def test_what_is_vendored_is_what_its_manifest_says() -> None:
    folder = files("penstock.server.dashboard") / "static" / "vendor"
    manifest = json.loads((folder / "manifest.json").read_text())
    for each in manifest:
        assert hashlib.sha256((folder / each["file"]).read_bytes()).hexdigest() == each["sha256"]
        assert (folder / each["license_file"]).read_text().strip()
    named = {
        "manifest.json",
        *(each["file"] for each in manifest),
        *(each["license_file"] for each in manifest),
    }
    assert {each.name for each in folder.iterdir()} == named


async def test_the_menu_of_namespaces_stays_short_and_has_the_one_of_the_page(
    server: assembly.Server, operator: Visitor
) -> None:
    """With thousands of namespaces every page was as long as their list."""
    api = Client(server.application)
    for number in range(NAMESPACES_SHOWN + 5):
        body = {"name": f"team-{number:04}"}
        (await api.post("/api/namespaces", body, role="admin")).expect(201)
    last = f"team-{NAMESPACES_SHOWN + 4:04}"
    text = await operator.page(f"/ui/queues?namespace={last}")
    menu = re.findall(r"/ui/queues\?namespace=(team-\d+|default)", text)
    assert len(set(menu)) == NAMESPACES_SHOWN + 1
    assert last in menu


async def test_every_key_of_a_queue_is_reached_by_pages_and_by_a_part_of_its_name(
    api: Client, operator: Visitor
) -> None:
    settings = {f"tenant_{number:02}%": {"max_running": 7} for number in range(60)}
    change = {"task_queue_type": "activity", "keys": settings}
    (await api.patch(f"/api/task-queues/{QUEUE}/config", change)).expect(200)
    rows = r'<span class="key">([^<]+)</span>'
    target: str | None = f"/ui/queues/{QUEUE}/keys?kind=activity"
    pages = []
    while target is not None:
        text = await operator.page(target)
        pages.append(re.findall(rows, text))
        found = re.search(r'rel="next" href="([^"]+)"', text)
        target = None if found is None else html.unescape(found[1])
    assert [len(each) for each in pages] == [50, 13]
    assert sorted(key for page in pages for key in page) == sorted([*settings, "acme", "globex", "initech"])
    assert f'href="/ui/queues/{QUEUE}/keys?kind=activity"' in await operator.page(f"/ui/queues/{QUEUE}")
    found_by = f"/ui/queues/{QUEUE}/keys?search="
    assert re.findall(rows, await operator.page(found_by + quote("_07%"))) == ["tenant_07%"]
    assert "No key contains" in await operator.page(found_by + quote("<b>"))
