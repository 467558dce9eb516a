"""What all tables of the report have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

Row = Mapping[str, Any]


def table(title: str, *columns: str, caption: str | None = None) -> Table:
    """A table whose text is Markdown; the first two columns are words."""
    made = Table(
        title=escape(title), title_justify="left", caption=caption, caption_justify="left", box=box.MARKDOWN
    )
    for place, column in enumerate(columns):
        made.add_column(escape(column), justify="left" if place < 2 else "right", no_wrap=place != 1)
    return made


def spread(figure: Row) -> str:
    """Median, least and most."""
    shown = "{:,.0f}" if figure["median"] >= 100 else "{:.2f}"
    median, least, most = (shown.format(figure[name]) for name in ("median", "min", "max"))
    return f"{median} [{least}..{most}]"


def number(value: float) -> str:
    return f"{value:,.0f}"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def percent(share: float | None) -> str:
    return "" if share is None else f"{share * 100:.0f} %"
