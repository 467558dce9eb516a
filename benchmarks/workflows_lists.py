"""How long it takes to find runs among many closed ones: pages and counts under filters, beside few and many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import uvloop

from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, Stand, StoreName, new_store, serving
from benchmarks.workflows_client import Talk, talk
from benchmarks.workflows_crowds import AMOUNT, CUSTOMER, ORIGINAL_AMOUNT, ORIGINAL_CUSTOMER, grow
from benchmarks.workflows_meter import Took, in_turn, row
from benchmarks.workload_loops import OPERATOR_HEADERS
from benchmarks.workloads import Say

PART = "list"
PAGE_SIZE = 10
DEEP = 100
"""The page that is read after the first ones."""
QUERIES: Mapping[str, str] = {
    "all": "",
    "type (one in 10)": "WorkflowType = 'bench.type-3'",
    "status (one in 100)": "Status = 'failed'",
    "started in one of five days": "StartTime < '-2d' AND StartTime >= '-3d'",
    "customer (one in 1,000)": f"`{CUSTOMER}` = 'customer-123'",
    "amount (99 of 100)": f"`{AMOUNT}` >= 10",
    "amount (one in 1,000, a range)": f"`{AMOUNT}` > 998",
    "type, customer and status": (
        f"WorkflowType = 'bench.type-3' AND `{CUSTOMER}` = 'customer-123' AND Status = 'completed'"
    ),
    "type or customer, in one day": (
        f"(WorkflowType = 'bench.type-3' OR `{CUSTOMER}` = 'customer-123') AND StartTime >= '-3d'"
    ),
    "type and queue that never meet": "WorkflowType = 'bench.type-3' AND TaskQueue = 'queue-4'",
    "part of an id": "00000123",
}
COUNTED = ("all", "type (one in 10)", "status (one in 100)", "customer (one in 1,000)")


class Lists:
    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, store: StoreName) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Took]] = {}
        for runs in self._sizes.listed:
            self._say(f"workflows, {store.value}: filling {runs:,} closed runs")
            url = self._filled(store, runs)
            self._say(f"workflows, {store.value}: listing {runs:,} closed runs")
            with serving(store, self._ground, url) as server:
                found[runs] = uvloop.run(self._measure(server))
        few = self._sizes.listed[0]
        return [
            row(store, PART, what, runs, [took], [found[few][what]] if runs != few else ())
            for runs, tooks in found.items()
            for what, took in tooks.items()
        ]

    def _filled(self, store: StoreName, runs: int) -> str:
        url = new_store(store, self._ground)
        with serving(store, self._ground, url) as server:
            uvloop.run(close_one(server))
        grow(url, runs - 1)
        return url

    async def _measure(self, server: Stand) -> dict[str, Took]:
        found: dict[str, Took] = {}
        async with talk(server.url) as talking:
            for name, query in QUERIES.items():
                pages = _Pages(talking, query)
                await pages.first()
                found[f"{name}: first page"] = await in_turn(server, [pages.first] * self._sizes.listed_asked)
                await pages.go_deep()
                found[f"{name}: page {DEEP} or the last"] = await in_turn(
                    server, [pages.deep] * self._sizes.listed_asked
                )
            for name in COUNTED:
                found[f"{name}: count"] = await in_turn(
                    server, [_Pages(talking, QUERIES[name]).count] * self._sizes.listed_counted
                )
        return found


class _Pages:
    """The pages of one query."""

    def __init__(self, talking: Talk, query: str) -> None:
        self._talking = talking
        self._query = {"query": query} if query else {}
        self._deep = ""

    async def first(self) -> str | None:
        return await self._page("")

    async def go_deep(self) -> None:
        """Follow the pages to a deep one, or to the last."""
        for _ in range(DEEP - 1):
            after = await self._page(self._deep)
            if after is None:
                return
            self._deep = after

    async def deep(self) -> None:
        await self._page(self._deep)

    async def count(self) -> None:
        """Up to a million runs are looked at; then the answer is how many there are at least."""
        await self._talking.ask("/api/workflows/count", self._query)

    async def _page(self, token: str) -> str | None:
        place = {"next_page_token": token} if token else {}
        size = {"page_size": str(PAGE_SIZE)}
        found = await self._talking.ask("/api/workflows", self._query | size | place)
        return found["next_page_token"]  # type: ignore[no-any-return]


async def close_one(server: Stand) -> None:
    """A run that is closed and has attributes of two kinds."""
    async with talk(server.url) as talking:
        for name, type_ in ((CUSTOMER, "keyword"), (AMOUNT, "int")):
            body = {"name": name, "type": type_}
            await talking.send("POST", "/api/search-attributes", OPERATOR_HEADERS, body)
        await talking.start(search_attributes={CUSTOMER: ORIGINAL_CUSTOMER, AMOUNT: ORIGINAL_AMOUNT})
        task = await talking.take_one()
        await talking.decide(task, [{"type": "complete_workflow", "result": "done"}])
