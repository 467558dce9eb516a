"""What the person at the terminal chose, and what each key changes. Pure, so that tests of keys need no terminal."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.cli.top.snapshot import QueueRow

RowName = tuple[str, str]


class TopOrder(enum.Enum):
    """The order of the rows; the value is what the heading says."""

    OLDEST = "oldest wait"
    WAITING = "waiting"
    RUNNING = "running"
    RATE = "rate"
    NAME = "name"


class TopKey(enum.Enum):
    """A key that does something."""

    UP, DOWN, FIRST, LAST = "up", "down", "first", "last"
    OPEN, BACK, SORT, PAUSE, HELP, QUIT = "open", "back", "sort", "pause", "help", "quit"


@dataclass(frozen=True, slots=True)
class TopState:
    """The choices so far.

    A row is chosen by its name and not by its place, so that it stays chosen while rows change their order.
    """

    order: TopOrder = TopOrder.OLDEST
    chosen: RowName | None = None
    is_open: bool = False
    is_paused: bool = False
    shows_help: bool = False
    is_over: bool = False


def ordered(rows: Sequence[QueueRow], order: TopOrder) -> list[QueueRow]:
    """The rows in an order; equal ones by name."""
    sizes: dict[TopOrder, Callable[[QueueRow], float]] = {
        TopOrder.OLDEST: lambda row: row.oldest_wait_seconds or 0.0,
        TopOrder.WAITING: lambda row: row.waiting,
        TopOrder.RUNNING: lambda row: row.running,
        TopOrder.RATE: lambda row: (row.added_per_second or 0.0) + (row.dispatched_per_second or 0.0),
        TopOrder.NAME: lambda row: 0,
    }
    return sorted(rows, key=lambda row: (-sizes[order](row), row.name))


def chosen_row(state: TopState, rows: Sequence[QueueRow]) -> QueueRow | None:
    """The chosen row of `rows`, which are in order; the first one if the chosen one is gone."""
    return next((row for row in rows if row.name == state.chosen), rows[0] if rows else None)


def pressed(state: TopState, key: TopKey, rows: Sequence[QueueRow]) -> TopState:
    """The state after a key; `rows` are in the order in which they are shown."""
    if state.shows_help:
        return replace(state, shows_help=False, is_over=key is TopKey.QUIT)
    match key:
        case TopKey.QUIT:
            return replace(state, is_over=True)
        case TopKey.HELP:
            return replace(state, shows_help=True)
        case TopKey.PAUSE:
            return replace(state, is_paused=not state.is_paused)
        case TopKey.BACK:
            return replace(state, is_open=False)
        case TopKey.OPEN:
            return replace(state, is_open=bool(rows), chosen=_name(chosen_row(state, rows)))
        case TopKey.SORT:
            orders = list(TopOrder)
            return replace(state, order=orders[(orders.index(state.order) + 1) % len(orders)])
        case _:
            return _moved(state, key, rows)


def _moved(state: TopState, key: TopKey, rows: Sequence[QueueRow]) -> TopState:
    row = chosen_row(state, rows)
    if row is None:
        return state
    at = rows.index(row)
    target = {TopKey.UP: at - 1, TopKey.DOWN: at + 1, TopKey.FIRST: 0, TopKey.LAST: len(rows) - 1}[key]
    return replace(state, chosen=rows[max(0, min(len(rows) - 1, target))].name)


def _name(row: QueueRow | None) -> RowName | None:
    return None if row is None else row.name
