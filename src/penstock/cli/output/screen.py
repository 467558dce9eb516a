"""Draws answers for people: tables, lists of facts and panels, in colour where the terminal wants it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.output.columns import CellOf, Row, columns, lookup
from penstock.cli.output.escapes import shown
from penstock.cli.output.exits import echo_err
from penstock.cli.output.times import parsed, relative, span

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_PIPE_COLUMNS = 100_000
_PANEL_COLUMNS = 100
_NARROWEST_TEXT = 20

_STYLES = {
    "green": (
        "completed", "active", "accepting", "serving", "ready", "ok", "leased", "up_to_date", "archived",
        "repair_dispatched", "signal_received", "update_completed", "created", "enforced", "pruned",
    ),
    "cyan": ("running", "pending", "started_new", "returned_existing_active"),
    "yellow": (
        "waiting", "draining", "active_with_draining", "throttled", "saturated", "stale_only", "full",
        "rate_limited", "at_running_limit", "paused", "needs_attention", "pending_work", "queue_backlog",
        "warning",
    ),
    "red": (
        "failed", "timed_out", "cancelled", "terminated", "stale", "no_active_workers", "no_slots",
        "no_worker_for_type",
        "unavailable", "degraded", "not_ready", "no_workers", "deleted", "expired", "error",
        "update_failed", "blocked", "quarantined",
    ),
}  # fmt: skip
_STYLE_OF = {status: style for style, statuses in _STYLES.items() for status in statuses}


@dataclass(frozen=True, slots=True)
class ScreenCell:
    """A piece of text and how it looks."""

    text: str
    style: str = ""


NOTHING = ScreenCell("-", "dim")
"""An empty cell in tables; lists of facts omit the line."""


def plain(value: object) -> ScreenCell:
    """A value for people: text as it is, None as a dash, lists separated by commas, the rest as JSON."""
    if value is None or value in ("", [], {}):
        return NOTHING
    if isinstance(value, str):
        return ScreenCell(value)
    if isinstance(value, bool):
        return ScreenCell("yes" if value else "no")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ScreenCell(", ".join(value))
    return ScreenCell(json.dumps(value, ensure_ascii=False, default=str))


def data(value: object) -> ScreenCell:
    """A payload, as the JSON it is."""
    return NOTHING if value is None else ScreenCell(json.dumps(value, ensure_ascii=False))


def name(value: object) -> ScreenCell:
    """The name that a row is about."""
    return ScreenCell(plain(value).text, "bold")


def status(value: object) -> ScreenCell:
    """A state, in the colour of how it is going."""
    cell = plain(value)
    style = _STYLE_OF.get(cell.text)
    return ScreenCell(cell.text, style) if style else cell


class Screen:
    """Where the data of one command goes (stdout). Everything drawn is escaped here, in one place."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
        if not self._console.is_terminal:
            self._console = Console(
                highlight=False, markup=False, emoji=False, width=_PIPE_COLUMNS, color_system=None
            )
        self.now = datetime.now(UTC)
        self._formats: dict[str, Callable[[Any], ScreenCell]] = {
            "": plain,
            "name": name,
            "status": status,
            "when": self.when,
            "exact": self.when_exactly,
            "span": lambda value: ScreenCell(span(value)) if isinstance(value, int | float) else NOTHING,
            "flag": lambda value: ScreenCell("yes", "yellow") if value else NOTHING,
            "bool": lambda value: plain(bool(value)),
        }

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches, and lines end where the terminal does."""
        return self._console.is_terminal

    def when(self, stamp: object) -> ScreenCell:
        """An instant, relative to now."""
        return NOTHING if stamp in (None, "") else ScreenCell(relative(stamp, self.now))

    def when_exactly(self, stamp: object) -> ScreenCell:
        """An instant, relative to now and as it was written."""
        if parsed(stamp) is None:
            return self.when(stamp)
        return ScreenCell(f"{relative(stamp, self.now)} ({stamp})")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[ScreenCell]]) -> None:
        """Draw one line per row under the headings."""
        self._print_table(_grid(headings, rows))

    def facts(self, pairs: Iterable[tuple[str, ScreenCell]]) -> None:
        """Draw one line per named fact that there is."""
        self._print_table(_fact_grid(pairs))

    def rows(
        self, rows: Sequence[Row], declaration: str, heading: str = "", *, empty: str = "", **given: CellOf
    ) -> None:
        """Draw a table of declared columns (see `columns`) under a heading. Without rows, only `empty` is reported."""
        if not rows:
            if empty:
                echo_err(empty)
            return
        if heading:
            self.heading(heading)
        drawn = [self._cells(row, declaration, given) for row in rows]
        self.table([each.label for each in columns(declaration)], drawn)

    def fields(self, body: Row, declaration: str, **given: CellOf) -> None:
        """Draw one line per declared field (see `columns`) that has a value."""
        self.facts(self.field_facts(body, declaration, **given))

    def field_facts(self, body: Row, declaration: str, **given: CellOf) -> Iterable[tuple[str, ScreenCell]]:
        """The declared fields of an object, with their labels."""
        labels = [each.label[0].upper() + each.label[1:] for each in columns(declaration)]
        return zip(labels, self._cells(body, declaration, given), strict=True)

    def _cells(self, row: Row, declaration: str, given: Mapping[str, CellOf]) -> list[ScreenCell]:
        drawn: list[ScreenCell] = []
        for _, key, field, how in columns(declaration):
            value = given[key](row) if key in given else lookup(row, field)
            drawn.append(value if isinstance(value, ScreenCell) else self._formats[how](value))
        return drawn

    def heading(self, text: str) -> None:
        """Draw the line above what follows."""
        self._console.print()
        self._console.print(_text(ScreenCell(text, "bold")))

    def panel(self, title: ScreenCell, pairs: Iterable[tuple[str, ScreenCell]], footer: str = "") -> None:
        """Draw named facts in a frame."""
        from rich import box
        from rich.console import Group
        from rich.panel import Panel

        content: list[Any] = [_fact_grid(pairs)]
        if footer:
            content.extend([_text(ScreenCell("")), _text(ScreenCell(footer, "dim"))])
        width = min(self._console.width, _PANEL_COLUMNS)
        frame = box.ROUNDED if "utf" in self._console.encoding.lower() else box.ASCII
        self._console.print(
            Panel(Group(*content), title=_text(title), title_align="left", width=width, box=frame)
        )

    def line(self, *cells: ScreenCell) -> None:
        """Draw cells one after another on a line of their own."""
        from rich.text import Text

        self._console.print(Text(" ").join([_text(cell) for cell in cells]), soft_wrap=True)

    def row(self, cells: Sequence[ScreenCell], widths: Sequence[int]) -> None:
        """Draw cells in columns; the last has no width and is cut where a terminal ends."""
        from rich.text import Text

        line = Text()
        for cell, width in zip(cells[:-1], widths, strict=True):
            text = _text(cell)
            text.align("left", max(width, text.cell_len))
            line.append_text(text)
            line.append("  ")
        line.append_text(_text(cells[-1]))
        line.rstrip()
        if self.is_terminal:
            line.truncate(self._console.width, overflow="ellipsis")
        self._console.print(line, soft_wrap=True)

    def below(self, cell: ScreenCell, indent: int) -> None:
        """Draw a line to the right of a margin; a terminal shows it whole, on as many lines as it needs."""
        from rich.text import Text

        margin = " " * indent
        text = _text(cell)
        room = max(_NARROWEST_TEXT, self._console.width - indent)
        lines = text.wrap(self._console, room, overflow="fold") if self.is_terminal else [text]
        for line in lines:
            whole = Text(margin).append_text(line)
            whole.rstrip()
            self._console.print(whole, soft_wrap=True)

    def value(self, value: object) -> None:
        """Draw a result as JSON, the form in which a script can read it."""
        self._console.print(_text(ScreenCell(json.dumps(value, ensure_ascii=False))), soft_wrap=True)

    def _print_table(self, table: Table) -> None:
        if self._console.is_terminal:
            self._console.print(table)
            return
        with self._console.capture() as capture:
            self._console.print(table)
        for line in capture.get().splitlines():
            sys.stdout.write(f"{line.rstrip()}\n")


def _text(cell: ScreenCell) -> Text:
    from rich.text import Text

    return Text(shown(cell.text), style=cell.style)


def _grid(headings: Sequence[str], rows: Iterable[Sequence[ScreenCell]]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
    for heading in headings:
        table.add_column(heading.upper(), overflow="fold")
    for row in rows:
        table.add_row(*[_text(cell) for cell in row])
    return table


def _fact_grid(pairs: Iterable[tuple[str, ScreenCell]]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, cell in (pair for pair in pairs if pair[1] is not NOTHING):
        table.add_row(_text(ScreenCell(label)), _text(cell))
    return table
