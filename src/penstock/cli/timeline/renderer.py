"""Draws events line by line: number, time since the start, event and details."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.cli.output.screen import Screen, ScreenCell
from penstock.cli.output.times import length
from penstock.cli.timeline.event_lines import EventLine, describe_event, kind_of
from penstock.cli.timeline.payloads import PayloadDisplay
from penstock.cli.timeline.steps import StepDurations, instant

_HEADINGS = ("#", "after", "event", "detail")
_NARROWEST = (3, 10, 22)
"""The columns of a timeline that is drawn as it happens, before its longest event is known."""
_GAP = 2
_PIPE_DETAIL_MAX = 160
_NESTED = "  "
_CHILD_STARTED = "ChildRunStarted"
_GENERATIONS_MAX = 5
_CHILD_NUMBER = 3
"""Extra width for the numbers of a child's events."""

Event = Mapping[str, Any]
Row = tuple[str, str, EventLine, Event]
Children = Callable[[Event], Sequence[Event]]
"""Reads the history of the child that an event starts."""


class Timeline:
    """A timeline on a screen. Events are drawn in order.

    With `children`, the events of a child follow the event that started it, numbered on their own.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        payloads: PayloadDisplay = PayloadDisplay.SHORT,
        started_at: datetime | None = None,
        children: Children | None = None,
    ) -> None:
        self._screen = screen
        self._payloads = payloads
        self._started_at = started_at
        self._children = children
        self._steps = StepDurations()
        self._widths: tuple[int, ...] = ()
        self._within = ""
        self._depth = 0

    def draw(self, events: Sequence[Event], *, newest_first: bool = False) -> None:
        """Draw further events; the first call sets the column widths."""
        rows = [self._row(event) for event in events]
        if not self._widths:
            self._begin(rows)
        for row in reversed(rows) if newest_first else rows:
            self._draw_row(*row)

    def begin_again(self, started_at: datetime | None) -> None:
        """Reset the steps: the next events are of another run, or of another part of this one."""
        self._started_at = started_at
        self._steps = StepDurations()

    def _row(self, event: Event) -> Row:
        kind, at = kind_of(event), instant(event)
        if self._started_at is None or (event.get("sequence") == 1 and not self._depth):
            self._started_at = at
        after = "-"
        if at is not None and self._started_at is not None:
            after = f"+{length(max(0.0, (at - self._started_at).total_seconds()))}"
        entry = describe_event(event, self._steps.record(kind, event), self._payloads)
        return f"{self._within}{event.get('sequence', '-')}", after, entry, event

    def _begin(self, rows: Sequence[Row]) -> None:
        lengths = [(len(number), len(after), len(self._name(entry))) for number, after, entry, _ in rows]
        number, *rest = (max(column) for column in zip(_NARROWEST, *lengths, strict=True))
        self._widths = (number + (_CHILD_NUMBER if self._children else 0), *rest)
        cells = [ScreenCell(heading.upper(), "bold dim") for heading in _HEADINGS]
        self._screen.row(cells, self._widths)

    def _draw_row(self, number: str, after: str, entry: EventLine, event: Event) -> None:
        detail = entry.text
        if not self._screen.is_terminal and len(detail) > _PIPE_DETAIL_MAX:
            detail = f"{detail[: _PIPE_DETAIL_MAX - 1]}…"
        cells = [
            ScreenCell(number, "dim"),
            ScreenCell(after),
            ScreenCell(self._name(entry), entry.style),
            ScreenCell(detail),
        ]
        self._screen.row(cells, self._widths)
        indent = self._widths[0] + self._widths[1] + 3 * _GAP + len(_NESTED) * (entry.depth + self._depth)
        for line in entry.failure:
            self._screen.below(ScreenCell(line, "red"), indent)
        for line in entry.payload:
            self._screen.below(ScreenCell(line, "dim"), indent)
        if entry.kind == _CHILD_STARTED and self._children is not None and self._depth < _GENERATIONS_MAX:
            self._draw_child(number, self._children(event))

    def _draw_child(self, number: str, events: Sequence[Event]) -> None:
        child = Timeline(
            self._screen, payloads=self._payloads, started_at=self._started_at, children=self._children
        )
        child._widths, child._within, child._depth = self._widths, f"{number}.", self._depth + 1
        child.draw(events)

    def _name(self, entry: EventLine) -> str:
        return f"{_NESTED * (entry.depth + self._depth)}{entry.kind}"
