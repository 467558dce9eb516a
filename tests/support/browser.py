"""Pages in a real Chromium, in which nothing may go wrong unnoticed.

One browser serves a test process; each test opens pages in contexts of its own, which share nothing. A
`WatchedBrowsing` notes what a page must not do: write an error to the console, throw, break its content policy, fail to
load something, or ask any host but the one that it came from. Such a note fails the test, unless the test said with
`expect_trouble` that it provokes it.

The page runs under its real content policy, so wait with `expect(locator)`: `page.wait_for_function` is refused there.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Playwright,
    Request,
    async_playwright,
    expect,
)

from tests.support.chromium import find_chromium
from tests.support.patience import PATIENCE_S

Theme = Literal["light", "dark"]
DESKTOP, PHONE = 1366, 320
UPDATE_VARIABLE = "PENSTOCK_TEST_UPDATE_GOLDEN"

# The tests may run as root, which the sandbox refuses; the resolver knows no name, so no other host can be reached.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
AXE_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")

# Violations are events of the document; the console shows most of them, and this one names the directive.
REPORT_VIOLATIONS = """document.addEventListener('securitypolicyviolation', event =>
  window.__policyViolation(`${event.violatedDirective} blocked ${event.blockedURI || 'inline'}`))"""

expect.set_options(timeout=PATIENCE_S * 1000)


async def start_browser(playwright: Playwright) -> Browser:
    """A headless Chromium with a fresh profile; it ends with `playwright`."""
    chromium = find_chromium()
    return await playwright.chromium.launch(
        executable_path=chromium.path,
        env={**os.environ, **chromium.environment},
        args=list(ARGUMENTS),
        chromium_sandbox=False,
        timeout=PATIENCE_S * 1000,
    )


def playwright() -> Any:
    """The driver, which ships its own runtime in its wheel; an async context manager."""
    return async_playwright()


@dataclass
class WatchedBrowsing:
    """The pages that one test has open, and what they did that they must not do."""

    browser: Browser
    troubles: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)
    _expected: list[re.Pattern[str]] = field(default_factory=list)

    async def open(
        self,
        url: str,
        *,
        theme: Theme = "light",
        width: int = DESKTOP,
        height: int = 900,
        beside: Page | None = None,
    ) -> Page:
        """A page at `url`, in a context of its own or `beside` another page, which shares its cookies."""
        if beside is None:
            context = await self._new_context(urlsplit(url).netloc, theme, width, height)
        else:
            context = beside.context
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        await page.goto(url)
        return page

    def expect_trouble(self, pattern: str) -> None:
        """Do not fail for notes that match `pattern`: this test provokes them."""
        self._expected.append(re.compile(pattern))

    async def __aenter__(self) -> WatchedBrowsing:
        """Close the pages at the end of the block, before the server goes that they are connected to."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_pages()

    async def close(self) -> None:
        """Close the pages and fail if one of them did what it must not do."""
        await self._close_pages()
        unexpected = [
            each for each in self.troubles if not any(known.search(each) for known in self._expected)
        ]
        assert not unexpected, "the page did what it must not do:\n" + "\n".join(unexpected)

    async def _close_pages(self) -> None:
        while self._contexts:
            await self._contexts.pop().close()

    async def _new_context(self, host: str, theme: Theme, width: int, height: int) -> BrowserContext:
        context = await self.browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="UTC",
        )
        self._contexts.append(context)
        await context.expose_function(
            "__policyViolation", lambda text: self.troubles.append(f"policy: {text}")
        )
        await context.add_init_script(REPORT_VIOLATIONS)
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.troubles.append(f"uncaught: {error.error}"))
        context.on("request", lambda request: self._on_request(host, request))
        return context

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, host: str, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob", "about") and address.netloc != host:
            self.troubles.append(f"another host: {request.url}")


async def assert_accessible(page: Page, *, but: Sequence[str] = ()) -> None:
    """axe finds nothing on the page as it is now; `but` names rules that the caller has a reason to leave out."""
    source = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(source)
    options = {
        "runOnly": {"type": "tag", "values": list(AXE_TAGS)},
        "rules": {rule: {"enabled": False} for rule in but},
        "resultTypes": ["violations"],
    }
    found = await page.evaluate("options => axe.run(document, options)", options)
    lines = [
        f"{violation['id']} ({violation['impact']}): {violation['help']}\n"
        + "\n".join(f"    {_shortened(node)}" for node in violation["nodes"][:5])
        for violation in found["violations"]
    ]
    assert not lines, f"axe on {page.url}:\n" + "\n".join(lines)


async def assert_fits(page: Page) -> None:
    """The page does not scroll sideways."""
    wide, seen = await page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= seen, f"{page.url} is {wide} px wide in a window of {seen}"


async def assert_tree(within: Locator, golden: Path, *, volatile: Mapping[str, str] | None = None) -> None:
    """The accessibility tree of an element is the one in `golden`.

    Set `PENSTOCK_TEST_UPDATE_GOLDEN=1` to write it anew, and read the difference before committing it.

    Args:
        within: The element whose tree is taken.
        golden: The file that holds the expected tree.
        volatile: What differs between runs, such as ids and times: pattern to the placeholder in the file.
    """
    tree = await within.aria_snapshot()
    for pattern, placeholder in (volatile or {}).items():
        tree = re.sub(pattern, placeholder, tree)
    tree = tree.rstrip() + "\n"
    if os.environ.get(UPDATE_VARIABLE):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(tree, encoding="utf-8")
    expected = golden.read_text(encoding="utf-8") if golden.exists() else ""
    difference = difflib.unified_diff(
        expected.splitlines(), tree.splitlines(), str(golden.name), "the page", lineterm=""
    )
    assert tree == expected, "\n".join(difference)


def _shortened(node: Mapping[str, Any]) -> str:
    why = node.get("failureSummary", "").splitlines()
    return f"{json.dumps(node['target'])} {node['html'][:160]} {' '.join(why[1:3]).strip()[:300]}"


__all__ = [
    "DESKTOP",
    "PHONE",
    "Error",
    "Theme",
    "WatchedBrowsing",
    "assert_accessible",
    "assert_fits",
    "assert_tree",
    "expect",
    "playwright",
    "start_browser",
]
