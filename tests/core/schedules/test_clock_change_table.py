"""The table of clock changes in the guide is what the code does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path

from penstock.core.schedules.spec import moments
from penstock.core.schedules.spec_text import read_spec
from penstock.engine.schedules.zones import zone

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "schedules.md"
CHANGES = (
    ("Europe/Berlin", "2027-03-28T00:00:00Z", "02:00 → 03:00"),
    ("Europe/Berlin", "2027-10-30T23:00:00Z", "03:00 → 02:00"),
    ("Australia/Lord_Howe", "2027-04-03T14:30:00Z", "02:00 → 01:30"),
    ("Antarctica/Troll", "2027-03-28T00:00:00Z", "01:00 → 03:00"),
)
EXPRESSIONS = {
    "Europe/Berlin": ("30 2 * * *", "0 * * * *", "*/30 2 * * *"),
    "Australia/Lord_Howe": ("45 1 * * *", "*/30 * * * *"),
    "Antarctica/Troll": ("30 1,2 * * *",),
}
OPTIONS = (
    {"gap": "shift", "repeat": "first"},
    {"gap": "skip", "repeat": "last"},
    {"gap": "shift", "repeat": "both"},
)
HOURS = 4


def table() -> str:
    """A row for each clock change and expression: the wall-clock times of its fires around the change."""
    heads = ["zone", "clock goes", "expression", *(f"gap {o['gap']}, repeat {o['repeat']}" for o in OPTIONS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, start, goes in CHANGES:
        for text in EXPRESSIONS[name]:
            cells = [_fires(name, start, text, option) for option in OPTIONS]
            lines.append(f"| {' | '.join([name, goes, f'`{text}`', *cells])} |")
    return "\n".join(lines)


def _fires(name: str, start: str, text: str, option: dict[str, str]) -> str:
    spec = read_spec({"cron_expressions": [text], "timezone": name} | option)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    after = datetime.fromisoformat(start)
    after_ms = (after - epoch) // timedelta(milliseconds=1)
    until_ms = after_ms + HOURS * 3_600_000
    found = takewhile(lambda at_ms: at_ms < until_ms, moments(spec, zone(name), after_ms))
    walls = [(epoch + timedelta(milliseconds=at_ms)).astimezone(zone(name)) for at_ms in found]
    return ", ".join(f"{wall:%H:%M}{_offset(wall)}" for wall in walls) or "–"


def _offset(wall: datetime) -> str:
    offset = wall.utcoffset()
    assert offset is not None
    hours, minutes = divmod(int(offset.total_seconds()) // 60, 60)
    return f"{hours:+d}" + (f":{minutes:02d}" if minutes else "")


def test_the_guide_has_the_table_that_the_code_makes() -> None:
    assert table() in GUIDE.read_text(), f"put this table into {GUIDE.name}:\n{table()}"


if __name__ == "__main__":
    print(table())
