"""How long `why` takes to answer beside many waiting tasks: with nothing limited, and with a limit that is full."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop
from msgspec.structs import replace

from benchmarks.limited_lines import Limits, declaration, start_one
from benchmarks.processes import load_average
from benchmarks.samples import loads
from benchmarks.sizes import Sizes
from benchmarks.stands import Ground, StoreName
from benchmarks.waiting_lines import KEY, NAMESPACE, QUEUE, WORKER, Case, WaitingLine, waiting_line
from benchmarks.workloads import Say
from penstock.core.limits.admission import Declaration, DeclaredScope, cluster_scope
from penstock.engine.limits import admission
from penstock.engine.visibility import explanations

TARGET_MS = 50
HELD = 200
"""Leases that are held while the question is asked."""
CLAIMED_AT_ONCE = 50
OPEN, FULL = "no limits", "every limit on, the cluster full"
LAST, NEW = "last of its key", "of a new key"


@dataclass(slots=True)
class Answers:
    milliseconds: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)


class WhyLatency:
    """Ask about tasks that have just joined a long queue."""

    def __init__(self, ground: Ground, sizes: Sizes, say: Say) -> None:
        self._ground = ground
        self._sizes = sizes
        self._say = say

    def run(self, stores: Sequence[StoreName]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for store in stores:
            for keys in self._sizes.why_keys:
                rows += uvloop.run(self._measure(store, Case(keys, self._sizes.why_backlog)))
        return rows

    async def _measure(self, store: StoreName, case: Case) -> list[dict[str, Any]]:
        self._say(f"why, {store.value}: filling {case.name}")
        answers: dict[tuple[str, str], Answers] = defaultdict(Answers)
        async with waiting_line(store, self._ground, case) as line:
            await line.place_all()
            await line.claim(CLAIMED_AT_ONCE, HELD)
            for situation, declared in ((OPEN, Declaration()), (FULL, _full())):
                await admission.declare(line.ctx, declared, WORKER)
                for number in range(self._sizes.why_asked):
                    for place, key in ((LAST, KEY), (NEW, f"{situation}-{number}")):
                        taken = answers[situation, place]
                        taken.milliseconds.append(await _ask(line, key))
                        taken.loads.append(load_average())
        return [
            {
                "store": store.value,
                "backlog": case.backlog,
                "keys": case.keys,
                "situation": situation,
                "task": place,
                "asked": len(taken.milliseconds),
                "p50_ms": round(statistics.median(taken.milliseconds), 2),
                "slowest_ms": round(max(taken.milliseconds), 2),
                "target_ms": TARGET_MS,
                "load": loads(taken.loads),
            }
            for (situation, place), taken in answers.items()
        ]


def _full() -> Declaration:
    """Every limit, and the one of the cluster is used up."""
    every = declaration(Limits.EVERY)
    return replace(every, scopes={**every.scopes, cluster_scope(): DeclaredScope(leases=1)})


async def _ask(line: WaitingLine, key: str) -> float:
    """Put a task in line and ask why it waits; returns how many milliseconds the answer took."""
    activity_id = await start_one(line.ctx, QUEUE, key)
    began = time.perf_counter()
    found = await explanations.activity(line.ctx, NAMESPACE, activity_id)
    took = (time.perf_counter() - began) * 1000
    assert found.explanation.sentence, "why has an answer"
    return took
