"""Draws shares.svg: three tenants on one queue, first in order of arrival, then with fairness.

`make docs` runs it. Nothing is drawn by hand: the server's own core decides who goes next, over invented time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from penstock.core.limits.policies import DispatchOrder, KeyState, LimitSetting, Policy, SettingValue
from penstock.core.limits.rates import MICRO
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling.dispatch import Grants, QueueSnapshot, decide, settle
from penstock.core.scheduling.fairness import Arrival, Lane, LaneKey, LaneState, VirtualClock

PICTURE = Path(__file__).with_suffix(".svg")
LEVEL, PER_SECOND, SECONDS = 3, 10, 120
OTHERS_AT_S, WEIGHTS_AT_S = 15, 60
TASKS = {"tenant-big": 630, "tenant-mid": 360, "tenant-small": 210}
WEIGHTS = {"tenant-big": 5, "tenant-mid": 3, "tenant-small": 2}
BIG, MID, SMALL = TASKS


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One task that went: whose it was, when it went, and how long it had waited."""

    key: str
    at_s: float
    waited_s: float


@dataclass(slots=True)
class Line:
    """A queue that keeps what a store would keep, and asks the core for everything else."""

    order: DispatchOrder
    lanes: dict[LaneKey, Lane] = field(default_factory=dict)
    clocks: dict[int, VirtualClock] = field(default_factory=dict)
    keys: dict[str, KeyState] = field(default_factory=dict)
    waiting: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """Of each key, the place in line and the moment of arrival of its tasks."""
    seq: int = 0
    paid_until_ns: int = 0

    def enqueue(self, key: str, count: int, now_ms: int) -> None:
        self.lanes[LEVEL, key] = Lane(LEVEL, key, 0, 1_000, 1_000, count, LaneState.NEW)
        self.waiting[key] = [(self.seq + number, now_ms) for number in range(count)]
        self.seq += count

    def override(self, key: str, weight: int) -> None:
        self.keys[key] = KeyState(key, weight_milli=weight * 1_000)
        self.lanes[LEVEL, key] = replace(self.lanes[LEVEL, key], state=LaneState.NEW)

    def claim(self, now_ms: int, room: int) -> Iterator[Dispatch]:
        snapshot = self._snapshot(now_ms, room)
        decision = decide(snapshot, room)
        if not isinstance(decision, Grants):
            return
        settled = settle(snapshot, decision.counts())
        self.lanes |= {lane.lane_key: lane for lane in settled.lanes}
        self.clocks |= {clock.level: clock for clock in settled.clocks}
        self.paid_until_ns = settled.paid_until_ns
        for _, key in settled.order:
            _, came_ms = self.waiting[key].pop(0)
            yield Dispatch(key, now_ms / 1_000, (now_ms - came_ms) / 1_000)

    def _snapshot(self, now_ms: int, room: int) -> QueueSnapshot:
        heads = sorted((seq, key) for key, tasks in self.waiting.items() for seq, _ in tasks[:room])
        return QueueSnapshot(
            queue=self._queue(),
            lanes=[lane for lane in self.lanes.values() if lane.count],
            clocks=list(self.clocks.values()),
            now_ms=now_ms,
            keys=self.keys,
            arrivals=[Arrival(LEVEL, seq, key) for seq, key in heads],
        )

    def _queue(self) -> Queue:
        """Ten a second, never two at once, so that the drawing shows the order and not the speed of workers."""
        settings = {
            LimitSetting.QUEUE_RATE: SettingValue(PER_SECOND * MICRO, "shares.py", 0),
            LimitSetting.QUEUE_BURST: SettingValue(0, "shares.py", 0),
        }
        return Queue(
            QueueId(1),
            "default",
            "orders",
            TaskKind.ACTIVITY,
            policy=Policy(1, settings),
            paid_until_ns=self.paid_until_ns,
            fair_by_default=int(self.order is DispatchOrder.FAIR),
        )


def play(order: DispatchOrder) -> list[Dispatch]:
    """The big tenant puts all it has in line, the others come later; then the weights are changed."""
    line = Line(order)
    line.enqueue(BIG, TASKS[BIG], 0)
    dispatches = list(_until(line, 0, OTHERS_AT_S))
    for key in (MID, SMALL):
        line.enqueue(key, TASKS[key], OTHERS_AT_S * 1_000)
    dispatches += _until(line, OTHERS_AT_S, WEIGHTS_AT_S)
    for key, weight in WEIGHTS.items():
        line.override(key, weight)
    return [*dispatches, *_until(line, WEIGHTS_AT_S, SECONDS)]


def _until(line: Line, from_s: int, to_s: int) -> Iterator[Dispatch]:
    for now_ms in range(from_s * 1_000, to_s * 1_000, 50):
        yield from line.claim(now_ms, room=4)


# The drawing. Its own ground lies under it, so that it can be read on any page.

WIDTH, LEFT, RIGHT, TOP, TALL, GAP = 800, 82, 28, 140, 138, 76
BIN_S = 3
STYLE = """
  svg { --ground: #ffffff; --edge: #d9dee5; --ink: #1c2430; --soft: #56606e; --line: #8a94a2;
        --big: #2f6db3; --mid: #e3a132; --small: #bf4478; --on-big: #ffffff; --on-mid: #2a1c00; --on-small: #ffffff;
        font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
  @media (prefers-color-scheme: dark) {
    svg { --ground: #151a22; --edge: #303946; --ink: #e9edf2; --soft: #a5b0be; --line: #7a8594;
          --big: #5a97dd; --mid: #e8b04c; --small: #dd6a9b; --on-big: #06162a; --on-mid: #2a1c00; --on-small: #2b0516; }
  }
  .ground { fill: var(--ground); stroke: var(--edge) } .title { font-size: 17px; font-weight: 650; fill: var(--ink) }
  .head { font-size: 14px; font-weight: 650; fill: var(--ink) } .ink { fill: var(--ink) } .soft { fill: var(--soft) }
  .end { text-anchor: end } .mid { text-anchor: middle } .strong { font-weight: 650 }
  .grid { stroke: var(--edge) } .frame { fill: none; stroke: var(--line) }
  .mark { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 2 4; stroke-linecap: round }
  .tenant-big { fill: var(--big) } .tenant-mid { fill: var(--mid) } .tenant-small { fill: var(--small) }
  .layer { stroke: var(--ground); stroke-width: 1.5 }
  .on-tenant-big { fill: var(--on-big) } .on-tenant-mid { fill: var(--on-mid) }
  .on-tenant-small { fill: var(--on-small) }
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One run of the queue, drawn as the share of each tenant over time."""

    title: str
    dispatches: Sequence[Dispatch]
    top: int
    spans: Sequence[tuple[int, int]]
    """The stretches of time whose shares are written into the drawing."""
    marks: Sequence[tuple[int, str]]

    def draw(self) -> Iterator[str]:
        yield _text(LEFT, self.top - 30, self.title, "head")
        yield _text(WIDTH - RIGHT, self.top - 30, self._wait(), "soft end")
        yield from self._layers()
        yield from self._axes()
        for start, end in self.spans:
            yield from self._written(start, end)
        for at_s, meaning in self.marks:
            yield from self._mark(at_s, meaning)

    def _wait(self) -> str:
        first = next(each.waited_s for each in self.dispatches if each.key == SMALL)
        return f"the first task of {SMALL} waits {first:.1f} s"

    def _layers(self) -> Iterator[str]:
        """From the ground up: each tenant's share of every bin, on top of the ones before."""
        ground = [0.0] * (SECONDS // BIN_S)
        bins = [self._shares(start, start + BIN_S) for start in range(0, SECONDS, BIN_S)]
        for key in TASKS:
            roof = [below + shares[key] for below, shares in zip(ground, bins, strict=True)]
            yield f'<path class="{key} layer" d="{self._outline(ground, roof)}"/>'
            ground = roof

    def _shares(self, start: float, end: float) -> dict[str, float]:
        counts = Counter(each.key for each in self.dispatches if start <= each.at_s < end)
        return {key: counts[key] / counts.total() for key in TASKS}

    def _outline(self, ground: Sequence[float], roof: Sequence[float]) -> str:
        steps = [(second, high) for at, high in enumerate(roof) for second in (at * BIN_S, (at + 1) * BIN_S)]
        back = [(second, low) for at, low in enumerate(ground) for second in (at * BIN_S, (at + 1) * BIN_S)]
        return (
            "M"
            + " L".join(f"{_x(second):.1f},{self._y(share):.1f}" for second, share in [*steps, *back[::-1]])
            + "Z"
        )

    def _axes(self) -> Iterator[str]:
        for percent in (0, 25, 50, 75, 100):
            y = self._y(percent / 100)
            yield f'<line class="grid" x1="{LEFT - 5}" x2="{LEFT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            if percent % 50 == 0:
                yield _text(LEFT - 9, y + 4, f"{percent} %", "soft end")
        yield f'<rect class="frame" x="{LEFT}" y="{self.top}" width="{_x(SECONDS) - LEFT:.1f}" height="{TALL}"/>'

    def _written(self, start: int, end: int) -> Iterator[str]:
        """Shares in the middle of where they hold."""
        ground = 0.0
        for key, share in self._shares(start, end).items():
            if share:
                y = self._y(ground + share / 2) + 5
                yield _text(_x((start + end) / 2), y, f"{100 * share:.0f} %", f"mid strong on-{key}")
            ground += share

    def _mark(self, at_s: int, meaning: str) -> Iterator[str]:
        x = _x(at_s)
        yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top - 6}" y2="{self.top + TALL}"/>'
        yield _text(x, self.top - 10, meaning, "ink")

    def _y(self, share: float) -> float:
        return self.top + TALL * (1 - share)


def _x(second: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * second / SECONDS


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{words}</text>'


def _upright(x: float, y: float, words: str) -> str:
    return f'<text class="soft mid" transform="translate({x:.1f} {y:.1f}) rotate(-90)">{words}</text>'


def _legend(y: int) -> Iterator[str]:
    x = LEFT
    for key, count in TASKS.items():
        yield f'<rect class="{key}" x="{x}" y="{y - 11}" width="13" height="13" rx="3"/>'
        yield _text(x + 20, y, f"{key}, {count} tasks", "ink")
        x += 182


def picture() -> str:
    """The whole drawing, the same on every machine."""
    second = TOP + TALL + GAP
    bottom = second + TALL
    arrive = (OTHERS_AT_S, f"{MID} and {SMALL} join")
    weigh = (WEIGHTS_AT_S, "weights set to 5 : 3 : 2")
    off = Panel("Fairness off", play(DispatchOrder.ARRIVAL), TOP, [(15, 60), (63, 99), (99, 120)], [arrive])
    on = Panel(
        "Fairness on",
        play(DispatchOrder.FAIR),
        second,
        [(0, 15), (15, 60), (60, 90), (90, 118)],
        [arrive, weigh],
    )
    lines = [
        _text(LEFT, 40, "Who is served, second by second: one queue, ten dispatches a second", "title"),
        *_legend(70),
        *off.draw(),
        *on.draw(),
        *(_text(_x(at), bottom + 20, str(at), "soft mid") for at in range(0, SECONDS + 1, 15)),
        _text(_x(SECONDS / 2), bottom + 42, "seconds", "soft mid"),
        *(_upright(22, top + TALL / 2, "share of dispatches") for top in (TOP, second)),
    ]
    height = bottom + 62
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
            '     role="img" aria-labelledby="name what">',
            '<title id="name">Shares of three tenants on one queue, without and with fairness</title>',
            f'<desc id="what">{DESCRIPTION}</desc>',
            f"<style>{STYLE}</style>",
            f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


DESCRIPTION = (
    "Without fairness tenant-big has the queue to itself for 63 seconds, then tenant-mid, then tenant-small. "
    "With fairness the three share equally from the moment they join, and in the proportion 5 to 3 to 2 from the "
    "moment the weights are set; when tenant-small has nothing left, the other two share its part."
)


if __name__ == "__main__":
    PICTURE.write_text(picture())
