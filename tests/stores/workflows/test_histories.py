"""Histories are append-only, and events are buffered in order while a workflow task is leased."""

from __future__ import annotations

import pytest

from penstock.core.history.events import CLOSING, EventType
from penstock.core.model import RunId
from penstock.ports.store import Store, Tx
from penstock.ports.tables.runs import PAGE_BYTES
from tests.stores.store_operations import look, record
from tests.support.builders import an_event, an_event_in_waiting

R1 = RunId("r1")


async def test_a_history_is_read_page_by_page_in_order(store: Store):
    events = [an_event("r1", n, payload=f'{{"n":{n}}}', task_id=f"r1-{n}") for n in range(1, 6)]
    await record(store, lambda tx: tx.histories.append(events[:2]))
    await record(store, lambda tx: tx.histories.append([*events[2:], an_event("r2", 1)]))
    assert await look(store, lambda tx: tx.histories.page(R1, 0, 3)) == events[:3]
    assert await look(store, lambda tx: tx.histories.page(R1, 3, 3)) == events[3:]
    assert await look(store, lambda tx: tx.histories.page(R1, 5, 3)) == []
    assert await look(store, lambda tx: tx.histories.page(RunId("r2"), 0, 3)) == [an_event("r2", 1)]


async def test_every_text_comes_back_as_it_was_recorded(store: Store):
    texts = ["", "NULL", '{"a":"(1,\\"b\\")"}', "{1,2}", "it's \\ a\tpath\n", "Grüße \U0001f600", " ", ","]
    events = [an_event("r1", n, payload=text, task_id=text) for n, text in enumerate(texts, 1)]
    nameless = an_event("r1", len(texts) + 1, task_id=None)
    await record(store, lambda tx: tx.histories.append([*events, nameless]))
    assert await look(store, lambda tx: tx.histories.page(R1, 0, 100)) == [*events, nameless]


async def test_a_history_is_read_backwards_page_by_page(store: Store):
    events = [an_event("r1", n, payload=f'{{"n":{n}}}') for n in range(1, 6)]
    await record(store, lambda tx: tx.histories.append([*events, an_event("r2", 1)]))
    assert await look(store, lambda tx: tx.histories.page_back(R1, 6, 2)) == [events[4], events[3]]
    assert await look(store, lambda tx: tx.histories.page_back(R1, 4, 2)) == [events[2], events[1]]
    assert await look(store, lambda tx: tx.histories.page_back(R1, 2, 2)) == [events[0]]
    assert await look(store, lambda tx: tx.histories.page_back(R1, 1, 2)) == []


async def test_a_history_is_read_backwards_from_beyond_its_end(store: Store):
    events = [an_event("r1", n) for n in range(1, 4)]
    await record(store, lambda tx: tx.histories.append(events))
    assert await look(store, lambda tx: tx.histories.page_back(R1, 1_000_000, 2)) == [events[2], events[1]]
    assert await look(store, lambda tx: tx.histories.page_back(R1, 1_000_000, 9)) == events[::-1]
    assert await look(store, lambda tx: tx.histories.page_back(RunId("nobody"), 9, 9)) == []


async def test_a_page_ends_where_it_is_large_enough_and_the_next_goes_on(store: Store):
    large = '"' + "x" * (PAGE_BYTES // 2) + '"'
    events = [an_event("r1", n, payload=large) for n in range(1, 6)]
    await record(store, lambda tx: tx.histories.append(events))
    assert await look(store, lambda tx: tx.histories.page(R1, 0, 100)) == events[:2]
    assert await look(store, lambda tx: tx.histories.page(R1, 2, 100)) == events[2:4]
    assert await look(store, lambda tx: tx.histories.page(R1, 4, 100)) == events[4:]
    assert await look(store, lambda tx: tx.histories.page_back(R1, 6, 100)) == [events[4], events[3]]
    assert await look(store, lambda tx: tx.histories.first_pages([R1], [100])) == [events[:2]]


@pytest.mark.parametrize("end", CLOSING)
async def test_a_run_ends_once(store: Store, end: EventType):
    await record(store, lambda tx: tx.histories.append([an_event("r1", 1, end), an_event("r2", 1, end)]))
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|ends once"):
        await record(store, lambda tx: tx.histories.append([an_event("r1", 2, EventType.WORKFLOW_FAILED)]))
    assert await look(store, lambda tx: tx.histories.page(R1, 0, 9)) == [an_event("r1", 1, end)]


async def test_the_first_pages_of_several_histories_come_each_with_its_own_limit(store: Store):
    one, two = ([an_event(run_id, n) for n in range(1, 5)] for run_id in ("r1", "r2"))
    await record(store, lambda tx: tx.histories.append([*one, *two]))
    asked = [RunId("r2"), RunId("nobody"), R1]
    assert await look(store, lambda tx: tx.histories.first_pages(asked, [1, 9, 3])) == [two[:1], [], one[:3]]
    assert await look(store, lambda tx: tx.histories.first_pages([], [])) == []


async def test_a_payload_comes_back_letter_by_letter(store: Store):
    payload = '{ "b": 1.0, "a": "\\u00fc ü 🜁", "big": 12345678901234567890 }'
    await record(store, lambda tx: tx.histories.append([an_event("r1", 1, payload=payload)]))
    [event] = await look(store, lambda tx: tx.histories.page(R1, 0, 1))
    assert event.payload == payload


async def test_the_last_event_of_some_types_is_found(store: Store):
    events = [an_event("r1", n, kind) for n, kind in enumerate(("A", "B", "A", "C"), start=1)]
    await record(store, lambda tx: tx.histories.append(events))
    assert await look(store, lambda tx: tx.histories.last_of_type(R1, ["A", "B"])) == events[2]
    assert await look(store, lambda tx: tx.histories.last_of_type(R1, ["B"])) == events[1]
    assert await look(store, lambda tx: tx.histories.last_of_type(R1, ["D"])) is None
    assert await look(store, lambda tx: tx.histories.last_of_type(RunId("r2"), ["A"])) is None


async def test_buffered_events_wait_in_order_of_arrival_until_they_are_cleared(store: Store):
    first = an_event_in_waiting(name="pay", nested={"list": [1, None, "ü"]})
    second, other = an_event_in_waiting(name="ship"), an_event_in_waiting(name="other")

    def write(tx: Tx) -> None:
        tx.histories.buffer(R1, 10, second)
        tx.histories.buffer(R1, 9, first)
        tx.histories.buffer(RunId("r2"), 1, other)

    await record(store, write)
    assert await look(store, lambda tx: tx.histories.buffered(R1)) == [first, second]
    await record(store, lambda tx: tx.histories.clear_buffer(R1))
    assert await look(store, lambda tx: tx.histories.buffered(R1)) == []
    assert await look(store, lambda tx: tx.histories.buffered(RunId("r2"))) == [other]
