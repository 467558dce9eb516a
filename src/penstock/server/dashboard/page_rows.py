"""The shapes of the two tables that a page adds rows to: pages and actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.server.dashboard.view import Act, View

Values = Mapping[str, Any]
Load = Callable[[View], Coroutine[Any, Any, Values]]


@dataclass(frozen=True, slots=True)
class Page:
    """One address below `/ui`: what it reads, and the template that shows it."""

    path: str
    """Such as `/queues/{name}`; a segment in braces is a parameter, and is decoded."""
    template: str
    load: Load
    """Reads the values of the template, in one snapshot. Awaits nothing but reads."""
    navigation: str = ""
    """The entry of the navigation that is highlighted."""
    is_live: bool = True
    """Whether a stream keeps its live blocks up to date."""
    is_fragment: bool = False
    """Whether it is a part of a page, such as a dialog, which is rendered without the shell."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an action did, in one sentence; shown to the person who asked for it."""

    message: str
    go_to: str | None = None
    """The address of the page to show then; the same page if it is None."""
    answer: str = ""
    """What came back, such as the result of a query; shown in the dialog, which then stays open."""


Carry = Callable[[Act], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Action:
    """One change that a page can ask for with POST."""

    path: str
    act: Carry
