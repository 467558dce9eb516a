"""Searches have the same result in all stores, page by page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from penstock.core.model import Run, RunHost, RunId, RunStatus
from penstock.core.visibility.binder import bind
from penstock.core.visibility.filters import EVERYTHING, Filter, RunView, matches
from penstock.core.visibility.parser import parse
from penstock.core.visibility.syntax import written
from penstock.ports.store import Store, Tx
from penstock.ports.tables.visibility import PageStart, RunPage, RunSearch, RunTally
from tests.stores.store_operations import look, record
from tests.support.builders import NOW_MS, a_run
from tests.support.queries import REGISTERED, draw_query, draw_run

RUNS, QUERIES = 90, 60


def meaning(text: str) -> Filter:
    return bind(parse(text), REGISTERED, NOW_MS)


async def insert(store: Store, *runs: Run) -> None:
    def write(tx: Tx) -> None:
        for run in runs:
            tx.runs.insert(run)

    await record(store, write)


async def found(store: Store, wanted: Filter, limit: int = 50, most: int = 1000) -> list[str]:
    """All pages, one after the other."""

    async def page(after: PageStart | None) -> RunPage:
        return await look(
            store, lambda tx: tx.visibility.page(RunSearch("default", wanted), after, limit, most)
        )

    told = await page(None)
    seen = [*told.runs]
    while (after := told.after) is not None:
        told = await page(after)
        assert len(told.runs) <= limit
        assert told.after is None or place(told.after) < place(after), "it goes on"
        seen += told.runs
    return [run.run_id for run in seen]


def place(start: PageStart) -> tuple[int, str]:
    return start.started_at_ms, start.run_id


async def counted(store: Store, wanted: Filter, most: int) -> Counter[str]:
    async def portion(after: PageStart | None) -> RunTally:
        return await look(store, lambda tx: tx.visibility.tally(RunSearch("default", wanted), after, most))

    tally = await portion(None)
    total = Counter(tally.by_status)
    while tally.after is not None:
        tally = await portion(tally.after)
        total.update(tally.by_status)
    return total


def expected(runs: Sequence[Run], wanted: Filter) -> list[Run]:
    here = [run for run in runs if run.namespace == "default" and run.host is RunHost.WORKFLOW]
    there = [run for run in here if matches(wanted, RunView(run))]
    return sorted(there, key=lambda run: (run.started_at_ms, run.run_id), reverse=True)


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_store_finds_what_the_filter_says_whatever_the_page_and_however_little_is_looked_at(
    store: Store, seed: int
):
    dice = Random(seed)
    runs = [draw_run(dice, f"r{number}") for number in range(RUNS)]
    await insert(store, *runs)
    matched = 0
    for _ in range(QUERIES):
        text = written(draw_query(dice))
        wanted = meaning(text)
        here = expected(runs, wanted)
        matched += len(here)
        limit, most = dice.choice(((2, 5), (9, 7), (50, 20), (7, 1000), (200, 1000)))
        assert await found(store, wanted, limit, most) == [run.run_id for run in here], text
        coalesced = Counter(run.closed_reason or run.status.value for run in here)
        assert await counted(store, wanted, dice.choice((11, 40, 1000))) == coalesced, text
    assert matched > QUERIES, "the queries are about these runs"


async def test_a_page_that_found_little_says_where_to_go_on(store: Store):
    await insert(
        store, *(a_run(f"r{n:03}", started_at_ms=NOW_MS + n, business_key=f"{n}") for n in range(300))
    )
    wanted = meaning("BusinessKey STARTS_WITH '0'")
    assert await found(store, wanted, limit=10, most=20) == ["r000"]
    page = await look(store, lambda tx: tx.visibility.page(RunSearch("default", EVERYTHING), None, 10, 20))
    assert [run.run_id for run in page.runs] == [f"r{n}" for n in range(299, 289, -1)]
    assert page.after == PageStart(NOW_MS + 290, "r290")


async def test_a_run_is_found_by_what_it_carries_now(store: Store):
    run = a_run(search_attributes='{"Customer": "acme", "Tags": ["new", "late"]}', memo='{"note": 7}')
    await insert(store, run)
    assert await found(store, meaning("Customer = 'acme' AND Tags = 'late' AND memo.note > 6")) == ["r1"]
    changed = replace(run, search_attributes='{"Customer": "zenith"}', memo="{}")
    await record(store, lambda tx: tx.runs.save_attributes(changed))
    assert await found(store, meaning("Customer = 'acme'")) == []
    assert await found(store, meaning("Customer = 'zenith' AND Tags IS NULL AND memo.note IS NULL")) == ["r1"]


async def test_a_run_is_found_by_its_status_as_that_changes(store: Store):
    run = a_run()
    await insert(store, run)
    assert await found(store, meaning("Status = 'open'")) == ["r1"]
    ended = replace(run, status=RunStatus.FAILED, closed_reason="timed_out", closed_at_ms=NOW_MS)
    await record(store, lambda tx: tx.runs.save(ended))
    assert await found(store, meaning("Status = 'open'")) == []
    for word in ("closed", "failed", "timed_out"):
        assert await found(store, meaning(f"Status = '{word}'")) == ["r1"]


ODD = ("\x00", "\ud800", "'; DROP TABLE runs; --", "\\", "\u2028", "🌊", "?1", "$1", "%s", "{}", "\x1f", "`")


async def test_odd_characters_are_kept_and_found(store: Store):
    runs = [
        a_run(
            f"r{n}", search_attributes=json.dumps({"Customer": odd}), memo=json.dumps({odd: odd, "note": odd})
        )
        for n, odd in enumerate(ODD)
    ]
    await insert(store, *runs)
    for number, odd in enumerate(ODD):
        if odd.isprintable():
            quoted = odd.replace("'", "''")
            assert f"r{number}" in await found(
                store, meaning(f"Customer = '{quoted}' AND memo.note = '{quoted}'")
            )
    assert len(await found(store, EVERYTHING)) == len(ODD)


async def test_a_search_attribute_is_registered_once_in_a_namespace(store: Store):
    async def register(namespace: str, name: str, type_: str) -> bool:
        async def operation(tx: Tx) -> bool:
            return await tx.visibility.register(namespace, name, type_)

        return await store.transact(operation, key=namespace)

    assert await register("default", "B", "int")
    assert await register("default", "A", "bool")
    assert not await register("default", "B", "double")
    assert await register("elsewhere", "B", "double")
    assert await look(store, lambda tx: tx.visibility.types("default")) == {"A": "bool", "B": "int"}
    await record(store, lambda tx: tx.visibility.unregister("default", "B"))
    await record(store, lambda tx: tx.visibility.unregister("default", "Nobody"))
    assert await look(store, lambda tx: tx.visibility.types("default")) == {"A": "bool"}
    await record(store, lambda tx: tx.visibility.unregister_all("default"))
    assert await look(store, lambda tx: tx.visibility.types("default")) == {}
    assert await look(store, lambda tx: tx.visibility.types("elsewhere")) == {"B": "double"}


async def test_nothing_waits_to_be_indexed_where_everything_was_written_by_this_release(store: Store):
    await insert(store, a_run(search_attributes='{"Customer": "acme"}'))
    assert list(await look(store, lambda tx: tx.visibility.unindexed(10))) == []
    await record(store, lambda tx: tx.visibility.index(RunId("r1"), None))
