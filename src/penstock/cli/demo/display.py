"""Progress of the demo: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from penstock.cli.demo.progress import STEPS, UNDOING, OrderBoard, OrderProgress
from penstock.cli.output.exits import echo_err

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_STYLES = {"begins": "yellow", "done": "green", "fails": "yellow", "refused": "red"}
_LINES_KEPT = 8
"""With the table this fits a terminal of 24 lines."""


class DemoDisplay(Protocol):
    """Prints progress."""

    def log(self, line: str) -> None: ...

    def show(self, board: OrderBoard) -> None: ...


@contextmanager
def demo_display() -> Iterator[DemoDisplay]:
    """The display for stderr; stdout is reserved for the summary."""
    if not sys.stderr.isatty():
        yield PlainDisplay()
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, transient=False) as live:
        yield LiveDisplay(live)


class PlainDisplay:
    """One line per event."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ended: set[str] = set()

    def log(self, line: str) -> None:
        echo_err(f"{time.monotonic() - self._began:5.1f} s  {line}")

    def show(self, board: OrderBoard) -> None:
        for name, card in board.cards.items():
            if card.result is not None and name not in self._ended:
                self._ended.add(name)
                self.log(f"{name} ({card.order.item} for {card.order.customer}): {card.result}")


class LiveDisplay:
    """A live table of the orders above the latest events."""

    def __init__(self, live: Any) -> None:
        self._live = live
        self._began = time.monotonic()
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._board: OrderBoard | None = None

    def log(self, line: str) -> None:
        self._lines.append(f"{time.monotonic() - self._began:5.1f} s  {line}")
        self._draw()

    def show(self, board: OrderBoard) -> None:
        self._board = board
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = []
        if self._board is not None:
            parts += [_table(self._board), Text("")]
        parts += [Text(line) for line in self._lines]
        self._live.update(Group(*parts), refresh=True)


def _table(board: OrderBoard) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
    for heading in ("order", "customer", "item", *STEPS, "undo", "result"):
        table.add_column(heading.upper(), no_wrap=True)
    for card in board.cards.values():
        order, result = card.order, (card.result or "").partition(":")[0]
        table.add_row(
            Text(order.id, "bold"),
            order.customer,
            order.item,
            *[_cell(card, step) for step in STEPS],
            _cell(card, next((step for step in reversed(UNDOING) if step in card.state), UNDOING[0])),
            Text(result, "green" if result == "shipped" else "red"),
        )
    return table


def _cell(card: OrderProgress, step: str) -> Text:
    from rich.text import Text

    state, count = card.state.get(step, ""), card.begun[step]
    return Text(f"{state}, {count}x" if count > 1 else state, _STYLES.get(state, ""))
