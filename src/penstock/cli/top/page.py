"""Draws what `penstock top` shows as lines that fit a terminal: pure, from a snapshot, the choices and a size.

Columns have fixed widths and share what is left, so that numbers stay in their place from one second to the next. The
page has exactly as many lines as the terminal; what does not fit is counted in a last line and not cut silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from penstock.cli.output.escapes import shown
from penstock.cli.output.screen import ScreenCell, status
from penstock.cli.output.times import setting
from penstock.cli.top.snapshot import KeyRow, LeaseRow, QueueDetail, QueueRow, TopGate, WorkerRow
from penstock.cli.top.state import TopOrder, TopState, chosen_row, ordered

T = TypeVar("T")

_DIM, _HEADING, _CHOSEN = "dim", "bold dim", "reverse"
_BAR_CELLS = 12
_SILENCE_SECONDS = 4.0
"""Without an answer for this long after the interval, the page says so."""
_KEYS = "q quit   j k choose   Enter open   s sort   p pause   ? help"
_HELP = (
    ("j k, arrows", "choose a queue; g and G, Home and End: the first and the last"),
    ("Enter, l", "open it: gates, shares of keys, leases, workers"),
    ("Esc, h", "back to all queues"),
    ("s", "sort by " + ", ".join(order.value for order in TopOrder)),
    ("p, space", "pause, and go on"),
    ("q", "quit"),
    ("", ""),
    ("WAITING", "tasks that are ready and that no worker holds"),
    ("RUN", "tasks that workers hold"),
    ("IN/S, OUT/S", "tasks added and dispatched a second, in the last half minute"),
    ("BINDS NOW", "what holds waiting tasks back; `penstock why ID` says more"),
    ("ASKED, GOT", "a key's share of dispatches by weight, and what it really gets"),
)


@dataclass(frozen=True, slots=True)
class TopPage:
    """What is known when a page is drawn.

    `as_of` is when the answers came. `trouble` says why there is no newer one; the rows are then of before.
    """

    server: str
    namespace: str
    rows: Sequence[QueueRow]
    detail: QueueDetail | None
    as_of: datetime
    now: datetime
    interval_seconds: float = 1.0
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class TopColumn(Generic[T]):
    """A column: its heading, its width in cells, its text. With a `share` it also gets that part of what is left."""

    heading: str
    width: int
    cell: Callable[[T], ScreenCell]
    right: bool = False
    share: int = 0


def page_lines(page: TopPage, state: TopState, width: int, height: int) -> list[Text]:
    """The lines of the whole terminal."""
    body = height - 3
    if state.shows_help:
        content = _help_lines(width)
    elif state.is_open and page.detail is not None:
        content = detail_lines(page.detail, width, body)
    else:
        content = _overview_lines(page, state, width, body)
    content = content[:body] + [Text()] * (body - len(content))
    lines = [_title(page, state, width), _state_line(page, state, width), *content, Text(_KEYS, _DIM)]
    return [_cut(line, width) for line in lines]


def table_lines(rows: Sequence[QueueRow], width: int, chosen: QueueRow | None = None) -> list[Text]:
    """The queues as a table with headings."""
    lines = _table(_queue_columns(width), rows, width)
    if chosen is not None:
        lines[1 + rows.index(chosen)].stylize(_CHOSEN)
    return lines


def detail_lines(detail: QueueDetail, width: int, height: int, *, is_brief: bool = False) -> list[Text]:
    """One queue: its gates, keys, leases and workers, as much of each as fits; if brief, without the workers."""
    row = detail.row
    lines = [_detail_title(row, width), _flow(row, width)]
    lines += [_gate_line(gate, width) for gate in row.gates]
    lines += [_cut(Text(f"  {shown(each)}", "red"), width) for each in row.unserved]
    sections = [
        ("", _table(_KEY_COLUMNS, detail.keys, width)),
        ("No task runs.", _table(_LEASE_COLUMNS, detail.leases, width)),
        ("No worker polls this queue.", _table(_WORKER_COLUMNS, detail.workers, width)),
    ]
    wanted = [(empty, table) for empty, table in sections[: 2 if is_brief else 3] if len(table) > 1 or empty]
    room = height - len(lines) - (0 if is_brief else len(wanted))
    for number, (empty, table) in enumerate(wanted):
        share = max(2, room // (len(wanted) - number))
        drawn = _fitted(table, share) if len(table) > 1 else [Text(f"  {empty}", _DIM)]
        room -= len(drawn)
        lines += [*([] if is_brief else [Text()]), *drawn]
    return lines[:height]


def _overview_lines(page: TopPage, state: TopState, width: int, height: int) -> list[Text]:
    rows = ordered(page.rows, state.order)
    if not rows:
        return [
            Text(),
            Text("No task queue yet. A queue appears with its first worker or its first workflow.", _DIM),
            Text("Start one: penstock worker run app.py --task-queue greetings", _DIM),
        ]
    chosen = chosen_row(state, rows)
    assert chosen is not None
    below = 0 if page.detail is None or page.detail.row.name != chosen.name else height // 2
    seen = _window(rows, rows.index(chosen), height - below - 1)
    lines = table_lines(seen, width, chosen)
    if below and page.detail is not None:
        lines += [
            Text("─" * width, _DIM),
            *detail_lines(page.detail, width, height - len(lines) - 1, is_brief=True),
        ]
    return lines


def _window(rows: Sequence[QueueRow], at: int, room: int) -> Sequence[QueueRow]:
    """As many rows as there is room for, around the chosen one."""
    room = max(1, room)
    first = max(0, min(at - room // 2, len(rows) - room))
    return rows[first : first + room]


def _title(page: TopPage, state: TopState, width: int) -> Text:
    waiting, running = sum(row.waiting for row in page.rows), sum(row.running for row in page.rows)
    left = f"{waiting:,} waiting, {running:,} running, by {state.order.value}"
    right = f"{shown(page.namespace)} on {shown(page.server)}  {page.as_of:%H:%M:%S} UTC"
    room = max(0, width - cell_len(left) - 2)
    text = Text(f"{left}  ", "bold").append(" " * (room - cell_len(right))).append(right, "none")
    return _cut(text, width)


def _state_line(page: TopPage, state: TopState, width: int) -> Text:
    """Empty while answers come."""
    if state.is_paused:
        return _cut(Text("Paused: the numbers stay as they were. Press p to go on.", "bold yellow"), width)
    age_seconds = (page.now - page.as_of).total_seconds()
    if page.trouble is None and age_seconds < page.interval_seconds + _SILENCE_SECONDS:
        return Text()
    what = "The server has not answered yet." if page.trouble is None else page.trouble
    age = setting(max(0, round(age_seconds)))
    return _cut(Text(f"Asking again; the numbers are {age} old. {shown(what)}", "bold red"), width)


def _help_lines(width: int) -> list[Text]:
    lines = [Text()]
    for keys, what in _HELP:
        lines.append(_cut(Text(f"  {keys:<13}", "bold").append(what, ""), width))
    return lines


def _detail_title(row: QueueRow, width: int) -> Text:
    state = status(row.status)
    text = (
        Text(shown(row.queue), "bold").append(f"  {row.kind} tasks  ", "none").append(state.text, state.style)
    )
    if row.binding:
        text.append(f"  {shown(row.binding)} binds now", "yellow")
    return _cut(text, width)


def _flow(row: QueueRow, width: int) -> Text:
    oldest = f", the oldest for {_span(row.oldest_wait_seconds)}" if row.oldest_wait_seconds else ""
    rates = ""
    if row.added_per_second is not None:
        rates = f"; in {_rate(row.added_per_second).text}/s, out {_rate(row.dispatched_per_second).text}/s"
    workers = "1 worker" if row.workers == 1 else f"{row.workers} workers"
    return _cut(Text(f"{row.waiting:,} waiting{oldest}; {row.running:,} running{rates}; {workers}"), width)


def _gate_line(gate: TopGate, width: int) -> Text:
    style = "red" if gate.is_full else "yellow" if gate.max and gate.used / gate.max >= 0.75 else "green"
    text = Text(f"  {shown(gate.name)[:28]:<28} {gate.used:>7,} of {gate.max:<7,} ")
    text.append(_bar(gate.used / gate.max if gate.max else 1.0), style)
    return _cut(text.append("  binds now" if gate.binds else "", "red"), width)


def _table(columns: Sequence[TopColumn[T]], rows: Sequence[T], width: int) -> list[Text]:
    """A heading line and a line for each row, none wider than `width`."""
    free = max(0, width - sum(each.width for each in columns) - len(columns) + 1)
    shares = sum(each.share for each in columns)
    widths = [each.width + free * each.share // shares for each in columns]
    lines = [_joined([ScreenCell(each.heading, _HEADING) for each in columns], columns, widths, width)]
    return lines + [_joined([each.cell(row) for each in columns], columns, widths, width) for row in rows]


def _joined(
    cells: Sequence[ScreenCell], columns: Sequence[TopColumn[T]], widths: Sequence[int], width: int
) -> Text:
    line = Text()
    for cell, column, room in zip(cells, columns, widths, strict=True):
        text = shown(cell.text)
        if cell_len(text) > room:
            text = f"{set_cell_size(text, room - 1)}…"
        space = " " * (room - cell_len(text))
        line.append(f"{space}{text}" if column.right else f"{text}{space}", cell.style)
        line.append(" ")
    line.right_crop(1)
    return _cut(line, width)


def _fitted(table: Sequence[Text], room: int) -> list[Text]:
    """A table in as many lines as there is room; the last says how many rows are left out."""
    if len(table) <= room:
        return list(table)
    kept = max(2, room - 1)
    return [*table[:kept], Text(f"  … and {len(table) - kept} more", _DIM)]


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def _bar(share: float) -> str:
    full = round(max(0.0, min(1.0, share)) * _BAR_CELLS)
    return "█" * full + "░" * (_BAR_CELLS - full)


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else setting(round(seconds))


def _share(share: float | None) -> ScreenCell:
    if share is None:
        return ScreenCell("-", _DIM)
    return ScreenCell(f"{share:>4.0%} {_bar(share)}")


def _number(count: float) -> ScreenCell:
    return ScreenCell(f"{count:,}", "" if count else _DIM)


def _rate(per_second: float | None) -> ScreenCell:
    if per_second is None:
        return ScreenCell("-", _DIM)
    return ScreenCell(
        f"{per_second:.1f}" if per_second < 1000 else f"{per_second:,.0f}", "" if per_second else _DIM
    )


def _queue_columns(width: int) -> list[TopColumn[QueueRow]]:
    kind_width, state_width = (8, 18) if width >= 100 else (8, 9)
    return [
        TopColumn("QUEUE", 9, lambda row: ScreenCell(row.queue, "bold"), share=2),
        TopColumn("TASKS", kind_width, lambda row: ScreenCell(row.kind)),
        TopColumn("STATUS", state_width, lambda row: status(row.status)),
        TopColumn("WAITING", 7, lambda row: _number(row.waiting), right=True),
        TopColumn("RUN", 5, lambda row: _number(row.running), right=True),
        TopColumn("IN/S", 5, lambda row: _rate(row.added_per_second), right=True),
        TopColumn("OUT/S", 5, lambda row: _rate(row.dispatched_per_second), right=True),
        TopColumn("OLDEST", 6, lambda row: _oldest(row), right=True),
        TopColumn(
            "BINDS NOW",
            9,
            lambda row: ScreenCell(row.binding or "-", "yellow" if row.binding else _DIM),
            share=3,
        ),
    ]


def _oldest(row: QueueRow) -> ScreenCell:
    if not row.waiting or row.oldest_wait_seconds is None:
        return ScreenCell("-", _DIM)
    seconds = row.oldest_wait_seconds
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return ScreenCell(
                f"{seconds / size:.1f}{unit}" if seconds < 10 * size else f"{seconds / size:.0f}{unit}"
            )
    return ScreenCell(f"{seconds:.0f}s")


_KEY_COLUMNS: Sequence[TopColumn[KeyRow]] = (
    TopColumn("  KEY", 8, lambda row: ScreenCell(f"  {row.key or '(no key)'}", "bold"), share=1),
    TopColumn("WEIGHT", 6, lambda row: ScreenCell(f"{row.weight:g}"), right=True),
    TopColumn("WAITING", 7, lambda row: _number(row.waiting), right=True),
    TopColumn("RUN", 4, lambda row: _number(row.running), right=True),
    TopColumn("ASKED", 5 + _BAR_CELLS, lambda row: _share(row.asked)),
    TopColumn("GOT", 5 + _BAR_CELLS, lambda row: _share(row.got)),
    TopColumn("STATE", 8, lambda row: status(row.state)),
)
_LEASE_COLUMNS: Sequence[TopColumn[LeaseRow]] = (
    TopColumn("  TASK OF", 8, lambda row: ScreenCell(f"  {row.task}", "bold"), share=1),
    TopColumn("WORKER", 8, lambda row: ScreenCell(row.worker), share=1),
    TopColumn("FOR", 9, lambda row: ScreenCell(_span(row.age_seconds)), right=True),
    TopColumn("LEASE ENDS IN", 13, lambda row: _lease_end(row), right=True),
    TopColumn("TRY", 4, lambda row: ScreenCell("-" if row.attempt is None else str(row.attempt)), right=True),
)
_WORKER_COLUMNS: Sequence[TopColumn[WorkerRow]] = (
    TopColumn("  WORKER", 8, lambda row: ScreenCell(f"  {row.worker}", "bold"), share=1),
    TopColumn("STATUS", 8, lambda row: status(row.status)),
    TopColumn("BUILD", 8, lambda row: ScreenCell(row.build), share=1),
    TopColumn("SLOTS", 6, lambda row: _number(row.slots), right=True),
    TopColumn("FREE", 6, lambda row: ScreenCell("-") if row.free is None else _number(row.free), right=True),
)


def _lease_end(row: LeaseRow) -> ScreenCell:
    if row.ends_in_seconds is not None and row.ends_in_seconds < 0:
        return ScreenCell("expired", "red")
    return ScreenCell(_span(row.ends_in_seconds))
