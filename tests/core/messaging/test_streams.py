"""Streams that runs write: what may be added, what is known already, and how they end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.messaging.streams import (
    ITEMS_MAX,
    StreamAppend,
    StreamClose,
    StreamItemDraft,
    StreamOrigin,
    StreamStatus,
    WorkflowStream,
    append,
    close,
    closed_with_run,
    parse_stream_command,
)
from penstock.core.model import Blob, RunId
from penstock.errors import Conflict, Exhausted, InvalidInput, Reason

NOW_MS = 1_790_000_000_000
OPEN = WorkflowStream(RunId("r1"), "progress", opened_at_ms=NOW_MS)


def items(*keys: str | None, most: int | None = None) -> StreamAppend:
    drafts = [StreamItemDraft(Blob("wwE="), idempotency_key=key) for key in keys]
    return StreamAppend(drafts, StreamOrigin.CLIENT, pending_max=most)


def test_items_get_the_next_offsets_from_0_on():
    first = append(OPEN, items(None, None), {}, NOW_MS)
    assert (first.offsets, first.stream.last_offset, first.stream.total_items) == ((0, 1), 1, 2)
    second = append(first.stream, items(None), {}, NOW_MS + 1)
    assert (second.offsets, second.stream.last_appended_at_ms) == ((2,), NOW_MS + 1)
    assert OPEN.last_offset is None


def test_an_item_whose_key_is_known_is_answered_with_its_offset():
    first = append(OPEN, items("a", "b", "a"), {}, NOW_MS)
    assert (first.offsets, len(first.items)) == ((0, 1, 0), 2)
    again = append(first.stream, items("b", "c"), {"a": 0, "b": 1}, NOW_MS)
    assert (again.offsets, [item.offset for item in again.items]) == ((1, 2), [2])


def test_items_that_are_all_known_change_nothing_even_after_the_end():
    stream = append(OPEN, items("a"), {}, NOW_MS).stream
    ended = close(stream, StreamClose(), NOW_MS)
    assert append(ended, items("a", most=1), {"a": 0}, NOW_MS).stream == ended
    with pytest.raises(Conflict) as refused:
        append(ended, items("b"), {}, NOW_MS)
    assert refused.value.reason is Reason.WORKFLOW_STREAM_CLOSED


@pytest.mark.parametrize(("read", "fits"), [(0, 1), (2, 3), (3, 4)])
def test_a_writer_says_how_much_may_be_unread(read: int, fits: int):
    stream = replace(OPEN, total_items=3, read_items=read)
    append(stream, items(*[None] * fits, most=4), {}, NOW_MS)
    with pytest.raises(Exhausted) as refused:
        append(stream, items(*[None] * (fits + 1), most=4), {}, NOW_MS)
    assert refused.value.reason is Reason.WORKFLOW_STREAM_FULL
    assert refused.value.details["retryable"] is True


def test_a_stream_has_so_many_items_and_no_more():
    stream = replace(OPEN, total_items=ITEMS_MAX - 1)
    assert append(stream, items(None), {}, NOW_MS).offsets == (ITEMS_MAX - 1,)
    with pytest.raises(InvalidInput) as refused:
        append(stream, items(None, None), {}, NOW_MS)
    assert refused.value.details["limit_kind"] == "workflow_stream_item_count"


def test_a_stream_ends_once_and_says_how():
    ended = close(OPEN, StreamClose("boom", 60), NOW_MS)
    assert (ended.status, ended.error_reason, ended.closed_at_ms) == (StreamStatus.ERRORED, "boom", NOW_MS)
    assert ended.expires_at_ms == NOW_MS + 60_000
    assert close(ended, StreamClose("other"), NOW_MS + 1) == ended
    with pytest.raises(Conflict):
        close(ended, StreamClose(), NOW_MS + 1)
    assert close(OPEN, StreamClose(), NOW_MS).expires_at_ms is None


def test_what_a_run_left_open_is_closed_for_readers_when_the_run_is():
    assert closed_with_run(OPEN, None) == OPEN
    seen = closed_with_run(OPEN, NOW_MS + 5)
    assert (seen.status, seen.closed_at_ms) == (StreamStatus.CLOSED, NOW_MS + 5)
    errored = close(OPEN, StreamClose("boom"), NOW_MS)
    assert closed_with_run(errored, NOW_MS + 5) == errored


def test_a_directive_without_keys_is_known_by_its_command():
    said: dict[str, Any] = {
        "operation": "append",
        "stream_name": "progress",
        "command_identity": "t1",
        "command_ordinal": 3,
        "items": [
            {"payload": "wwE="},
            {"payload": None, "payload_reference": "s3://x", "idempotency_key": "k"},
        ],
        "max_pending_items": 9,
    }
    found = parse_stream_command(said).act
    assert isinstance(found, StreamAppend)
    assert found.keys == ["dw-stream:t1:3:0", "k"]
    assert (found.origin, found.origin_reference, found.pending_max) == (StreamOrigin.WORKFLOW, "t1:3", 9)


@given(
    st.lists(st.lists(st.one_of(st.none(), st.sampled_from("abcdef")), min_size=1, max_size=4), max_size=12)
)
def test_offsets_are_dense_and_each_key_has_one(requests: list[list[str | None]]):
    stream, known, seen = OPEN, dict[str, int](), list[int]()
    for keys in requests:
        done = append(stream, items(*keys), known, NOW_MS)
        stream = done.stream
        seen += [item.offset for item in done.items]
        for key, offset in zip(keys, done.offsets, strict=True):
            assert key is None or known.setdefault(key, offset) == offset
    assert seen == list(range(stream.total_items))
