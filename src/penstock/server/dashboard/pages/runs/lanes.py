"""The timeline of a run as geometry: the spans of the API as parts of a bar in per cent, and what they say in words.

A picture shows a window of the run's time: all of it, a part that was zoomed into, or, where it follows an open run,
the last of it. The steps of a child that was opened stand below it, on the clock of the run that is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from penstock.server.dashboard.formats import duration, moment_ms
from penstock.server.operation import Body

LANES_SHOWN: Final = 80
DEPTH_MAX: Final = 3
"""How deep children are shown inside a timeline."""
_LABELLED_BARS: Final = 8
"""A lane of more bars, such as that of the workflow tasks, gets no words."""
_CAUSES: Final = {
    "cap": "cap",
    "rate": "rate",
    "key": "a limit of its key",
    "paused": "pause",
    "cooling": "cool-down",
    "turn": "its turn",
    "no_worker": "a worker",
    "blocked": "a build that replays it",
    "unknown": "dispatch",
    "backoff": "backoff",
    "start_delay": "start delay",
    "timer": "a timer",
    "signal": "a signal",
}
_BY_DESIGN: Final = frozenset({"backoff", "start_delay", "timer", "signal"})
_TICKS: Final = 5
_BUCKETS: Final = 150
"""Parts in which a lane is drawn at most."""
_WIDTH_MAX: Final = 4_000
_WINDOW_MIN_MS: Final = 10
_FOLLOWED_MS: Final = 60_000
_LABEL_SHARE: Final = 1.4
"""The share of the width, in per cent, that a character of a label takes at most."""
_NAMED_FROM_MS: Final = 10
"""A shorter wait is what it takes to hand out a task."""


class TimelineWindow(Struct, frozen=True):
    """The part of a run's time that is shown, in milliseconds since its start."""

    from_ms: int
    to_ms: int
    whole_ms: int
    follows: bool = False

    @property
    def length_ms(self) -> int:
        return max(1, self.to_ms - self.from_ms)

    @property
    def is_whole(self) -> bool:
        return self.from_ms == 0 and self.to_ms >= self.whole_ms

    @property
    def width(self) -> int:
        """How finely the whole timeline is asked for, so that the window has as much detail as a whole picture."""
        return min(_WIDTH_MAX, _BUCKETS * self.whole_ms // self.length_ms)

    def zoomed(self, factor: float) -> TimelineWindow:
        """A window of another length around the same middle."""
        length = min(self.whole_ms, max(_WINDOW_MIN_MS, round(self.length_ms * factor)))
        from_ms = (self.from_ms + self.to_ms - length) // 2
        from_ms = max(0, min(from_ms, self.whole_ms - length))
        return TimelineWindow(from_ms, from_ms + length, self.whole_ms)

    def share(self, at_ms: int) -> float:
        """Where an instant is in the window, in per cent, which is below 0 or above 100 outside of it."""
        return round(100 * (at_ms - self.from_ms) / self.length_ms, 2)


def window_of(query: Mapping[str, str], whole_ms: int, *, is_open: bool) -> TimelineWindow:
    """The window that an address asks for; all of the run if it asks for none that makes sense.

    Args:
        query: The parameters of the page: `from` and `to`, or `follow`, in milliseconds.
        whole_ms: How long the run took, or has been open.
        is_open: Whether the run goes on; another is not followed.
    """
    whole_ms = max(1, whole_ms)
    if is_open and query.get("follow", "").isdigit():
        length = max(_WINDOW_MIN_MS, int(query["follow"][:12]))
        return TimelineWindow(max(0, whole_ms - length), whole_ms, whole_ms, follows=True)
    from_text, to_text = query.get("from", ""), query.get("to", "")
    if from_text.isdigit() and to_text.isdigit():
        from_ms, to_ms = int(from_text[:12]), min(int(to_text[:12]), whole_ms)
        if to_ms - from_ms >= _WINDOW_MIN_MS:
            return TimelineWindow(from_ms, to_ms, whole_ms)
    return TimelineWindow(0, whole_ms, whole_ms)


def followed_ms(window: TimelineWindow) -> int:
    """The length of the window that follows, begun from another."""
    return _FOLLOWED_MS if window.is_whole else window.length_ms


class Bar(Struct, frozen=True):
    """A part of a lane: where it is, in per cent, its look, and what it says."""

    x: float
    width: float
    look: str
    text: str
    event: int | None = None
    """The newest event of the history that it stands for."""
    from_ms: int = 0
    to_ms: int = 0


class LaneLabel(Struct, frozen=True):
    """Words inside a bar, or beside it: where they begin, in per cent."""

    x: float
    text: str
    look: str


class DrawnLane(Struct, frozen=True):
    """A row of the timeline."""

    name: str
    kind: str
    address: tuple[str, ...]
    bars: list[Bar]
    retries: list[float]
    held: str
    """What held it back, with its cause; empty if nothing did."""
    designed: str
    """What it waited for by design."""
    ran_seconds: float | None
    attempts: int
    outcome: str
    is_open: bool
    type: str
    folded: int
    labels: list[LaneLabel]
    depth: int = 0
    run: tuple[str, ...] = ()
    """The run whose history has its events, where that is not the run of the page."""
    opens: str = ""
    """The run of a child whose steps may be shown below."""
    is_opened: bool = False


class Axis(Struct, frozen=True):
    """The marks of the time axis: position in per cent, and text."""

    marks: list[tuple[float, str]]


def drawn(
    timeline: Body, window: TimelineWindow | None = None, *, inside: Sequence[Body] = ()
) -> list[DrawnLane]:
    """The lanes of an answer of the timeline, each child's own lanes below it if it is opened.

    Args:
        timeline: The answer.
        window: What is shown of it; all of it if None.
        inside: The timelines of the children that are opened.
    """
    window = window or TimelineWindow(0, max(1, timeline["length_ms"]), max(1, timeline["length_ms"]))
    opened = {each["run_id"]: each for each in inside}
    return list(_rows(timeline, window, moment_ms(timeline.get("started_at")) or 0, opened, 0, ()))


def _rows(
    timeline: Body,
    window: TimelineWindow,
    origin_ms: int,
    opened: Mapping[str, Body],
    depth: int,
    run: tuple[str, ...],
) -> Iterator[DrawnLane]:
    offset = (moment_ms(timeline.get("started_at")) or origin_ms) - origin_ms
    for lane in timeline["lanes"]:
        child = opened.get(lane.get("child_run_id") or "")
        yield _lane(lane, window, offset, depth, run, is_opened=child is not None)
        if child is not None and depth < DEPTH_MAX:
            address = (child["workflow_id"], child["run_id"])
            yield from _rows(child, window, origin_ms, opened, depth + 1, address)


def axis(timeline: Body, window: TimelineWindow | None = None) -> Axis:
    """Marks at equal distances, in time since the start."""
    window = window or TimelineWindow(0, max(1, timeline["length_ms"]), max(1, timeline["length_ms"]))
    found = []
    for n in range(2 if window.from_ms else 1, _TICKS):
        at_ms = window.from_ms + window.length_ms * n / _TICKS
        found.append((round(100 * n / _TICKS, 1), f"+{duration(at_ms / 1000)}"))
    return Axis(found)


def spent_parts(spent: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the time of a run went: three parts that add up to the whole, each with its causes."""
    total, causes = max(1, spent["total_ms"]), spent["waits"]
    at, parts = 0.0, []
    for name, field, look in (
        ("Held back by gates", "held_back_ms", "wait"),
        ("Running", "running_ms", "run"),
        ("Waiting by design", "by_design_ms", "asked"),
    ):
        share = 100 * spent[field] / total
        said = [
            f"{_CAUSES.get(cause, cause)} {duration(ms / 1000)}"
            for cause, ms in causes.items()
            if ms and (cause != "unknown" or ms >= _NAMED_FROM_MS)
            if look == ("asked" if cause in _BY_DESIGN else "wait")
        ]
        parts.append(
            {
                "name": name,
                "field": field,
                "look": look,
                "x": round(at, 2),
                "width": round(share, 2),
                "ms": spent[field],
                "percent": round(share),
                "causes": ", ".join(said),
            }
        )
        at += share
    return parts


def _lane(
    lane: Body, window: TimelineWindow, offset: int, depth: int, run: tuple[str, ...], *, is_opened: bool
) -> DrawnLane:
    held: Counter[str] = Counter()
    designed: Counter[str] = Counter()
    ran = attempts = 0
    bars = []
    for span in lane["spans"]:
        length, cause = span["to"] - span["from"], span.get("cause")
        look, said = "run", "running"
        if span["state"] == "waiting":
            look = "asked" if span.get("by_design") else "wait"
            if cause != "unknown" or length >= _NAMED_FROM_MS:
                (designed if span.get("by_design") else held)[_CAUSES.get(cause, str(cause))] += length
            said = f"waits: {_CAUSES.get(cause, cause)}"
        else:
            ran += length
            attempts += 1
            if span.get("outcome") in ("failed", "timed_out"):
                look, said = "failed", f"attempt {span.get('attempt', 1)} {span['outcome']}"
        bar = _bar(span, window, offset, look, f"{said}, {duration(length / 1000)}")
        if bar is not None:
            bars.append(bar)
    child = lane.get("child_workflow_id")
    child_run = lane.get("child_run_id")
    return DrawnLane(
        name=lane["label"],
        kind=lane["kind"].replace("_", " "),
        address=(child, *([child_run] if child_run else [])) if child else (),
        bars=bars,
        retries=[
            at
            for at in (window.share(tick["at"] + offset) for tick in lane.get("ticks", []))
            if 0 <= at <= 100
        ],
        held=_said(held),
        designed=_said(designed),
        ran_seconds=ran / 1000 if attempts else None,
        attempts=attempts,
        outcome=lane.get("outcome") or "",
        is_open=bool(lane.get("is_open")),
        type=lane["type"],
        folded=lane.get("folded", 0),
        labels=_labels(bars),
        depth=depth,
        run=run,
        opens=child_run or "" if depth < DEPTH_MAX else "",
        is_opened=is_opened,
    )


def _bar(span: Body, window: TimelineWindow, offset: int, look: str, text: str) -> Bar | None:
    """The part of a span that the window shows; None if it shows nothing of it."""
    from_ms, to_ms = span["from"] + offset, span["to"] + offset
    left, right = window.share(from_ms), window.share(to_ms)
    if right < 0 or left > 100:
        return None
    left, right = max(0.0, left), min(100.0, right)
    events = span.get("events") or [None]
    width = round(max(0.3, right - left), 2)
    return Bar(round(min(left, 99.7), 2), width, look, text, events[-1], from_ms, to_ms)


def _labels(bars: Sequence[Bar]) -> list[LaneLabel]:
    """Words for the bars that have room for them: inside a wait its cause, behind the last bar what it was."""
    found = []
    for bar in bars:
        if bar.look in ("wait", "asked"):
            words = bar.text.removeprefix("waits: ").partition(",")[0]
            if bar.width >= len(words) * _LABEL_SHARE + 2:
                found.append(LaneLabel(round(bar.x + 0.8, 2), words, "cause" if bar.look == "wait" else ""))
    if bars and bars[-1].look in ("run", "failed"):
        last = bars[-1]
        words = last.text.rpartition(", ")[2] if last.look == "run" else last.text
        end = last.x + last.width + 0.8
        if len(bars) < _LABELLED_BARS and end + len(words) * _LABEL_SHARE <= 100:
            found.append(LaneLabel(round(end, 2), words, ""))
    return found


def _said(causes: Counter[str]) -> str:
    return ", ".join(f"{cause} {duration(ms / 1000)}" for cause, ms in causes.most_common(3) if ms)
