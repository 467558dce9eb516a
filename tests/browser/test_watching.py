"""The browser tests notice what they promise to notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.browser import (
    PHONE,
    WatchedBrowsing,
    assert_accessible,
    assert_fits,
    assert_tree,
    expect,
)
from tests.support.chromium import NoBrowserFound, describe_chromium, find_chromium

SOUND = """<!doctype html><html lang="en"><head><title>Queues</title><link rel="icon" href="/icon"></head><body>
<main><h1>Queues</h1><p id="now">waits</p><button id="go">Go</button></main>{more}</body></html>"""


@dataclass
class Site:
    """Documents by path, served on loopback under a strict content policy."""

    url: str
    documents: dict[str, tuple[str, str]] = field(default_factory=dict)

    def page(self, more: str = "") -> str:
        self.documents["/"] = ("text/html", SOUND.replace("{more}", more))
        return self.url + "/"

    def script(self, source: str) -> str:
        self.documents["/page.js"] = ("text/javascript", source)
        return self.page('<script src="/page.js"></script>')


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, text = made.documents.get(self.path, ("text/plain", ""))
            found = self.path in made.documents or self.path == "/icon"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Security-Policy", "default-src 'self'")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """The test looks at the page, not at the log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Site(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made
        server.shutdown()
        thread.join()


async def test_a_sound_page_passes_in_both_themes_and_on_a_phone(
    browsing: WatchedBrowsing, site: Site
) -> None:
    url = site.script("document.getElementById('go').onclick = () => { now.textContent = 'gone' }")
    page = await browsing.open(url, theme="dark", width=PHONE)
    await page.get_by_role("button", name="Go").click()
    await expect(page.locator("#now")).to_have_text("gone")
    await assert_accessible(page)
    await assert_fits(page)


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("throw new Error('broken')", "uncaught: .*broken"),
        ("console.error('wrong')", "console: wrong"),
        ("open('http://127.0.0.2:9/')", "another host: http://127.0.0.2:9/"),
        ("fetch('http://example.org/').catch(() => {})", "policy: connect-src blocked http://example.org"),
        ("document.body.insertAdjacentHTML('beforeend', '<p style=\"color:red\">x')", "policy: style-src"),
        ("fetch('/nowhere')", "console: .*404"),
    ],
)
async def test_what_a_page_must_not_do_fails_the_test(
    browsing: WatchedBrowsing, site: Site, script: str, named: str
) -> None:
    page = await browsing.open(site.script(f"addEventListener('load', () => {{ {script} }})"))
    await page.wait_for_load_state("networkidle")
    with pytest.raises(AssertionError, match=named):
        await browsing.close()
    browsing.expect_trouble(".")


async def test_axe_names_the_element_that_nobody_can_hear(browsing: WatchedBrowsing, site: Site) -> None:
    page = await browsing.open(site.page('<img src="/icon"><input>'))
    with pytest.raises(AssertionError, match=r"image-alt.*\n.*img(.|\n)*label"):
        await assert_accessible(page)


async def test_a_page_that_scrolls_sideways_is_noticed(browsing: WatchedBrowsing, site: Site) -> None:
    page = await browsing.open(site.page("<pre>" + "wide" * 200 + "</pre>"), width=PHONE)
    with pytest.raises(AssertionError, match="px wide in a window of 320"):
        await assert_fits(page)


async def test_a_tree_that_changed_is_shown_as_a_difference(
    browsing: WatchedBrowsing, site: Site, tmp_path: Path
) -> None:
    golden = tmp_path / "queues.yaml"
    golden.write_text('- main:\n  - heading "Lines" [level=1]\n  - paragraph: <state>\n  - button "Go"\n')
    page = await browsing.open(site.page())
    with pytest.raises(AssertionError, match=r'-  - heading "Lines"(.|\n)*\+  - heading "Queues"'):
        await assert_tree(page.locator("body"), golden, volatile={"waits": "<state>"})


def test_a_machine_without_a_browser_fails_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NoBrowserFound, match="apt-get install chromium"):
        find_chromium()
    monkeypatch.setenv("PENSTOCK_TEST_CHROMIUM", "/nowhere/chromium")
    assert describe_chromium() == "PENSTOCK_TEST_CHROMIUM names /nowhere/chromium, which does not start"
