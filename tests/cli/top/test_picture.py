"""What `penstock top` shows of the server's answers: in a pipe, as JSON, and line by line."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from penstock.cli.top.page import TopPage, page_lines
from penstock.cli.top.rates import QueueRates
from penstock.cli.top.snapshot import KeyRow, QueueDetail, QueueRow, TopGate, queue_details, queue_rows
from penstock.cli.top.state import TopKey, TopOrder, TopState, chosen_row, ordered, pressed
from tests.cli.recorded_server import RecordedServer, Run

NOW = datetime(2026, 11, 18, 16, 33, 13, tzinfo=UTC)
ROW = QueueRow(
    "bank",
    "activity",
    "throttled",
    22,
    2,
    200,
    1,
    0.5,
    0.5,
    39.0,
    [TopGate("leases, queue", 2, 2, True)],
    [],
    9,
    8,
)
BANK = {
    "name": "bank",
    "namespace": "default",
    "stats": {
        "oldest_ready_task": {"task_type": "activity", "age_seconds": 39},
        "workflow_tasks": {"ready_count": 0, "leased_count": 0, "added_last_minute": 0},
        "activity_tasks": {
            "ready_count": 22,
            "leased_count": 2,
            "added_last_minute": 55,
            "dispatched_last_minute": 40,
            "backlog_by_priority": [{"oldest_wait_seconds": 39.2}, {"oldest_wait_seconds": 1.0}],
            "top_keys": [
                {"fairness_key": "Ada", "weight": 1.0, "backlog_count": 15, "running": 1, "share_asked": 0.5,
                 "share_got": 0.375, "state": "ready", "oldest_wait_seconds": 20.2},
                {"fairness_key": "", "weight": 2.0, "backlog_count": 7, "running": 1, "share_asked": 0.5,
                 "share_got": None, "state": "paused"},
            ],
        },
    },
    "admission": {
        "activity_tasks": {
            "status": "throttled",
            "active_worker_count": 1,
            "configured_slot_count": 100,
            "leased_count": 2,
            "claimed_count": 1,
            "unserved": [],
            "caps": [
                {"scope": "queue:default/bank/activity", "limit": "active_leases", "max": 2, "used": 2, "remaining": 0}
            ],
        },
    },
    "pollers": [{"worker_id": "w-1", "status": "active", "is_stale": True, "max_concurrent_activity_tasks": 100}],
    "current_leases": [
        {"task_id": "t", "task_type": "activity", "workflow_id": "order-7", "lease_owner": "w-1", "attempt_number": 3,
         "leased_at": "2026-11-18T16:33:03Z", "lease_expires_at": "2026-11-18T16:33:12Z"}
    ],
}  # fmt: skip


def test_in_a_pipe_it_is_one_table_without_codes(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/task-queues", {"task_queues": [BANK]})
    heading, bank = ask("top").stdout.splitlines()
    assert heading.split()[:4] == ["QUEUE", "TASKS", "STATUS", "WAITING"]
    assert " ".join(bank.split()) == "bank activity throttled 22 2 - - 39s 2 of 2 leases, queue"
    assert ask("top", "--once").stdout.splitlines() == [heading, bank]


def test_a_named_queue_is_shown_with_gates_keys_leases_and_workers(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/task-queues", {"task_queues": [BANK]})
    server.answer("GET", "/task-queues/bank", BANK)
    shown = ask("top", "bank").stdout
    assert "leases, queue                      2 of 2       ████████████  binds now" in shown
    assert "slots of workers                   1 of 100" in shown
    assert "Ada                " in shown
    assert " 50% ██████░░░░░░" in shown
    assert " 38% ████░░░░░░░░" in shown
    assert "order-7" in shown
    assert "expired" in shown
    assert "stale" in shown


def test_a_queue_that_does_not_exist_is_an_error_that_names_the_list(
    ask: Run, server: RecordedServer
) -> None:
    server.answer("GET", "/task-queues", {"task_queues": [BANK]})
    result = ask("top", "bnak")
    assert result.exit_code == 1
    assert "task_queue_not_found: There is no task queue 'bnak'." in result.stderr
    assert "penstock task-queue list" in result.stderr


def test_scripts_get_json(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/task-queues", {"task_queues": [BANK]})
    (queue,) = json.loads(ask("top", "--json").stdout)["queues"]
    assert queue["binds_now"] == "2 of 2 leases, queue"
    assert (queue["task_queue"], queue["waiting"], queue["running"]) == ("bank", 22, 2)
    assert queue["gates"][1] == {"limit": "slots of workers", "used": 1, "max": 100}


def test_the_oldest_workflow_task_of_a_queue_is_seen_behind_an_older_activity() -> None:
    """It was a dash: only the kind of the queue's oldest task had an age."""
    counts = {"ready_count": 1, "leased_count": 0, "added_last_minute": 0, "oldest_wait_seconds": 7.5}
    both = BANK | {"stats": BANK["stats"] | {"workflow_tasks": counts}}  # type: ignore[operator]
    rows = {row.kind: row for row in queue_rows({"task_queues": [both]})}
    assert rows["workflow"].oldest_wait_seconds == 7.5


def test_without_queues_it_says_where_they_come_from(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/task-queues", {"task_queues": []})
    result = ask("top")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert "No task queue yet." in result.stderr


def test_tasks_that_no_worker_takes_bind_before_any_limit() -> None:
    body = json.loads(json.dumps(BANK))
    body["admission"]["activity_tasks"]["unserved"] = [{"type": "charge", "ready_count": 4}]
    (row,) = queue_rows({"task_queues": [body]})
    assert row.binding == "no worker: 4 of type charge"


def test_the_oldest_wait_is_of_the_kind_that_the_row_shows() -> None:
    details = queue_details(BANK, NOW)
    assert details["activity"].row.oldest_wait_seconds == 39.2
    assert details["workflow"].row.oldest_wait_seconds is None


names = st.text(max_size=255)
rows = st.builds(
    replace,
    st.just(ROW),
    queue=names,
    kind=st.sampled_from(["workflow", "activity"]),
    waiting=st.integers(0, 10**9),
    oldest_wait_seconds=st.none() | st.floats(0, 1e8),
    added_per_second=st.none() | st.floats(0, 1e6),
    gates=st.lists(
        st.builds(TopGate, names, st.integers(0, 10**6), st.integers(0, 10**6), st.booleans()), max_size=6
    ),
)
keys = st.builds(KeyRow, names, st.floats(0, 1e3), st.integers(0, 99), st.integers(0, 99), st.none(), st.none(),
                 st.none() | st.floats(0, 1), st.just("ready"))  # fmt: skip


@given(
    rows=st.lists(rows, max_size=30),
    keys=st.lists(keys, max_size=30),
    state=st.builds(TopState, st.sampled_from(TopOrder), is_open=st.booleans(), shows_help=st.booleans()),
    trouble=st.none() | names,
    width=st.integers(40, 200),
    height=st.integers(8, 60),
)
def test_a_page_has_the_size_of_the_terminal_whatever_it_shows(
    rows: list[QueueRow], keys: list[KeyRow], state: TopState, trouble: str | None, width: int, height: int
) -> None:
    detail = QueueDetail(rows[0], keys, [], []) if rows else None
    page = TopPage("host:8080", "default", rows, detail, NOW, NOW, trouble=trouble)
    lines = page_lines(page, state, width, height)
    assert len(lines) == height
    assert all(cell_len(line.plain) <= width for line in lines)
    assert not any(
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for line in lines for char in line.plain
    )


def test_an_answer_that_does_not_come_shows_the_age_of_the_numbers() -> None:
    late = NOW.replace(minute=34)
    page = TopPage("host:8080", "default", [ROW], None, NOW, late)
    assert (
        "the numbers are 1 m 00 s old. The server has not answered yet."
        in page_lines(page, TopState(), 100, 24)[1].plain
    )


def test_a_chosen_queue_stays_chosen_when_the_order_changes() -> None:
    others = [
        replace(ROW, queue="a", oldest_wait_seconds=50.0),
        replace(ROW, queue="z", oldest_wait_seconds=1.0),
    ]
    shown = ordered([ROW, *others], TopOrder.OLDEST)
    assert [row.queue for row in shown] == ["a", "bank", "z"]
    state = pressed(TopState(), TopKey.DOWN, shown)
    state = pressed(state, TopKey.SORT, shown)
    later = ordered([replace(ROW, waiting=99), *others], state.order)
    chosen = chosen_row(state, later)
    assert chosen is not None
    assert chosen.queue == "bank"
    assert later[0] is chosen


@pytest.mark.parametrize("key", [key for key in TopKey if key is not TopKey.QUIT])
def test_no_key_fails_without_queues(key: TopKey) -> None:
    assert pressed(TopState(), key, []).is_over is False


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_a_rate_counts_every_task_once_though_the_count_begins_anew_each_minute(growths: list[int]) -> None:
    rates, count, (row,) = QueueRates(), 1000, rates_of(0, 1000)
    for second, growth in enumerate([0, *growths]):
        count = growth if second and second % 20 == 0 and growth < count else count + growth
        (row,) = rates.rated([replace(ROW, added_this_minute=count)], float(second))
    recent = growths[-30:]
    assert row.added_per_second == pytest.approx(sum(recent) / len(recent), abs=0.01)


def rates_of(second: int, count: int) -> list[QueueRow]:
    return QueueRates().rated([replace(ROW, added_this_minute=count)], float(second))
