"""When a backlog is gone: by flow balance where it never drains, else by three runs of the scheduler.

One run has arrivals and durations as measured. The other two have both at the ends of their 95 % intervals, with the
same draws: what they find is the range. A backlog that one of them does not drain may not drain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.simulator.balance import FlowBalance
from penstock.simulator.changes import Change, changed
from penstock.simulator.comparison import wait_text
from penstock.simulator.live.fluid_scale import FluidScale, scale_for
from penstock.simulator.live.live_load import LiveLoad
from penstock.simulator.live.live_model import RUNNING, Flow, LiveModel, longer
from penstock.simulator.measures import Measures, QueueName
from penstock.simulator.model_file import ModelFile
from penstock.simulator.workload import Workload

HORIZON_MAX_MS = 30 * 24 * 3_600_000
HORIZON_FACTOR = 2.5
"""A run ends after so many times what the flow balance expects."""
HORIZON_LEAST_MS = 60_000
TASKS_MAX = 200_000
KEYS_MAX = 20
RunWorkload = Callable[[Workload, str], Awaitable[Measures]]


class Gone(Struct, frozen=True):
    """How long until a backlog is gone, in milliseconds; None: it does not drain."""

    expected: int | None
    soonest: int | None
    latest: int | None

    def __str__(self) -> str:
        if self.expected is None:
            return "does not drain"
        if self.soonest is None or self.latest is None:
            return f"{wait_text(self.expected)} (from {wait_text(self.soonest or 0)} to never)"
        texts = [wait_text(each) for each in (self.soonest, self.latest)]
        text = wait_text(self.expected)
        return text if texts[0] == texts[1] == text else f"{text} ({texts[0]} to {texts[1]})"


class QueueForecast(Struct, frozen=True):
    """What becomes of the backlog of one queue."""

    queue: str
    kind: str
    waiting: int
    delayed: int
    running: int
    unserved: int
    arriving_per_minute: float
    most_per_minute: float | None
    """What the tightest limit allows; None: there is no limit and no worker."""
    mean_ms: float
    gone_ms: Gone
    bound_by: str
    """What limits the drain."""
    next_limit: str
    """What would limit it next, and from which pace on; empty: nothing."""
    keys: Mapping[str, Gone]


class Forecast(Struct, frozen=True):
    """What was found; the same state and changes give the same forecast."""

    summary: str
    input_hash: str
    as_of: str
    changes: tuple[str, ...]
    notes: tuple[str, ...]
    is_exact: bool
    """Whether each task was simulated; else the load was shrunk in time and size."""
    base: Sequence[QueueForecast]
    changed: Sequence[QueueForecast]
    """As `base`, with the changes; empty without any."""


class LiveForecast:
    """Forecasts of the state of a server, as it is and with changes."""

    def __init__(self, live: LiveModel, changes: Sequence[Change], *, seed: int = 1) -> None:
        """Prepare the runs.

        Args:
            live: the state.
            changes: what is changed in it at once; none: only the state as it is.
            seed: of the draws.
        """
        self._live, self._changes, self._seed = live, tuple(changes), seed
        self.models = [live.model] if not changes else [live.model, changed(live.model, changes)]

    async def find(self, run: RunWorkload, version: str, queue: str | None = None) -> Forecast:
        """Carry out the runs that are needed.

        Args:
            run: runs one workload.
            version: of the product, which is part of the hash.
            queue: the only queue to report; None: all.
        """
        horizon_ms = max(self._horizon_ms(each) for each in self.models)
        scale = scale_for(self.models, horizon_ms) if horizon_ms else FluidScale()
        found = [await self._of_model(each, scale, horizon_ms, run, queue) for each in self.models]
        base, altered = found[0], found[1] if self._changes else []
        return Forecast(
            summary=" ".join(filter(None, _sentences(base, altered, self._live.now_ms))),
            input_hash=self._hash(version),
            as_of=datetime.fromtimestamp(self._live.now_ms / 1000, UTC).isoformat(timespec="seconds"),
            changes=tuple(map(str, self._changes)),
            notes=self._live.notes,
            is_exact=scale.is_exact,
            base=base,
            changed=altered,
        )

    def _hash(self, version: str) -> str:
        facts: Any = [version, self._live.model, list(map(str, self._changes)), self._seed]
        return hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()

    def _horizon_ms(self, model: ModelFile) -> float:
        """How long the slowest drain takes that comes to an end; 0: none does."""
        balance = FlowBalance.of_model(model)
        times = [_fluid_ms(balance, each) for each in self._live.flows]
        finite = [each for each in times if 0 < each < inf]
        if not finite:
            return 0.0
        return min(HORIZON_MAX_MS, max(finite) * HORIZON_FACTOR + HORIZON_LEAST_MS)

    async def _of_model(
        self, model: ModelFile, scale: FluidScale, horizon_ms: float, run: RunWorkload, queue: str | None
    ) -> list[QueueForecast]:
        balance = FlowBalance.of_model(model)
        variants = list(self._variants(model)) if horizon_ms else []
        ends = [
            await self._ends(each, scale, horizon_ms, run, label)
            for each, label in zip(variants, ("as measured", "less load", "more load"), strict=False)
        ]
        return [
            self._of_queue(flow, balance, ends)
            for flow in self._live.flows
            if queue in (None, flow.name[0]) and (flow.waiting or flow.delayed)
        ]

    def _variants(self, model: ModelFile) -> Iterator[ModelFile]:
        yield model
        flows = {each.name: each for each in self._live.flows}
        for sign in (-1, 1):
            streams = []
            for stream in model.arrivals:
                flow = next(
                    flow
                    for name, flow in flows.items()
                    if (name[0], name[1].value) == (stream.queue, stream.kind)
                )
                stream = longer(stream, 1 + sign * flow.time_within)
                if stream.per_minute is not None:
                    stream = replace(stream, per_minute=stream.per_minute * (1 + sign * flow.arrivals_within))
                streams.append(stream)
            yield replace(model, arrivals=streams)

    async def _ends(
        self, model: ModelFile, scale: FluidScale, horizon_ms: float, run: RunWorkload, label: str
    ) -> _Ends:
        load = LiveLoad(model, self._live.now_ms, horizon_ms, scale)
        workload = load.workload(self._seed, TASKS_MAX)
        measures = await run(workload, label)
        of_keys: dict[tuple[QueueName, str], float | None] = {}
        dispatches = measures.dispatches
        backlog = {
            index for index, each in enumerate(workload.arrivals) if each.at_ms <= 1 and each.type != RUNNING
        }
        seen = set()
        for at_ms, index in zip(dispatches[::3], dispatches[1::3], strict=True):
            if index in backlog:
                seen.add(index)
                each = workload.arrivals[index]
                of_keys[(each.queue, each.kind), each.key] = at_ms * scale.time
        for index in backlog - seen:
            each = workload.arrivals[index]
            of_keys[(each.queue, each.kind), each.key] = None
        gone = {
            name: queue.cleared_at_ms * scale.time
            for name, queue in measures.queues.items()
            if queue.cleared_at_ms is not None
        }
        return _Ends(gone, of_keys)

    def _of_queue(self, flow: Flow, balance: FlowBalance, ends: Sequence[_Ends]) -> QueueForecast:
        drains = _fluid_ms(balance, flow) < inf and not flow.unserved
        binding = balance.binding(flow.name)
        first, most = binding[0]
        later = next(((each, pace) for each, pace in binding[1:] if pace > most), None)
        keys = sorted({key for each in ends for name, key in each.of_keys if name == flow.name})
        waits_at_all = {key for key in keys if not key.startswith("(other")}
        return QueueForecast(
            queue=flow.name[0],
            kind=flow.name[1].value,
            waiting=flow.waiting,
            delayed=flow.delayed,
            running=flow.running,
            unserved=flow.unserved,
            arriving_per_minute=flow.per_minute,
            most_per_minute=None if most == inf else most,
            mean_ms=flow.mean_ms,
            gone_ms=_gone([each.gone.get(flow.name) for each in ends] if drains else []),
            bound_by=str(first),
            next_limit=""
            if later is None or later[1] == inf
            else f"{later[0]}, from {later[1]:,.4g} a minute on",
            keys={
                key: _gone([each.of_keys.get((flow.name, key)) for each in ends])
                for key in sorted(waits_at_all)[:KEYS_MAX]
            },
        )


class _Ends(Struct, frozen=True):
    """When backlogs were gone in one run, in the time of the server."""

    gone: Mapping[QueueName, float]
    of_keys: Mapping[tuple[QueueName, str], float | None]
    """None: a part of it was left."""


def _gone(found: Sequence[float | None]) -> Gone:
    expected, soonest, latest = (
        (None if each is None else round(each) for each in found) if found else (None,) * 3
    )
    if expected is None:
        return Gone(None, soonest, None)
    known = [each for each in (expected, soonest, latest) if each is not None]
    return Gone(expected, min(known), None if latest is None else max(known))


def _fluid_ms(balance: FlowBalance, flow: Flow) -> float:
    """How long the backlog takes if the tightest limit is used all the time; infinite: it grows or stands still."""
    backlog = flow.waiting - flow.unserved + flow.delayed
    most = balance.binding(flow.name)[0][1]
    net = most - balance.demand(flow.name).per_minute
    if net <= 0:
        return inf if backlog else 0.0
    return backlog / net * 60_000


# ── In words ────────────────────────────────────────────────────────────────────────────────────────────────────


def _sentences(base: Sequence[QueueForecast], altered: Sequence[QueueForecast], now_ms: int) -> Iterator[str]:
    if not base:
        yield "No task waits, so nothing has to drain."
    for index, before in enumerate(base):
        after = altered[index] if altered else before
        name = after.queue if after.kind == "activity" else f"{after.queue} (workflow tasks)"
        if after.waiting or after.delayed:
            yield _drain(name, after, now_ms) + (_instead(before, after) if altered else "") + "."
            yield _binding(after)


def _drain(name: str, each: QueueForecast, now_ms: int) -> str:
    count = each.waiting + each.delayed
    gone = each.gone_ms
    if gone.expected is not None:
        at = datetime.fromtimestamp((now_ms + gone.expected) / 1000, UTC)
        stamp = at.strftime("%H:%M:%S UTC" if gone.expected < 86_400_000 else "%Y-%m-%d %H:%M UTC")
        return f"The backlog of {count:,} tasks in {name} is gone in {gone}, at {stamp}"
    if each.unserved:
        return f"The backlog of {count:,} tasks in {name} will not drain: no worker takes {each.unserved:,} of them"
    pace = each.most_per_minute or 0.0
    if pace <= each.arriving_per_minute:
        grows = each.arriving_per_minute - pace
        return (
            f"The backlog of {count:,} tasks in {name} will not drain: {each.arriving_per_minute:,.4g} arrive a "
            f"minute, and {each.bound_by} allow {pace:,.4g}"
            + (f"; it grows by {grows:,.4g} a minute" if grows >= 0.05 else "")
        )
    return f"The backlog of {count:,} tasks in {name} is not gone within the time that was simulated"


def _instead(before: QueueForecast, after: QueueForecast) -> str:
    if str(before.gone_ms) == str(after.gone_ms):
        return ", as without the change"
    return f" (without the change: {before.gone_ms})"


def _binding(each: QueueForecast) -> str:
    if each.gone_ms.expected is None:
        return f"Next limit: {each.next_limit}." if each.next_limit else ""
    text = f"What limits it: {each.bound_by}"
    return f"{text}; then {each.next_limit}." if each.next_limit else f"{text}."
