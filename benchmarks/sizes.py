"""How much is measured: enough for a figure in `FULL`, enough for a smoke in `QUICK`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    repetitions: int
    workflows: int
    activities: int
    batched: int
    """How many times as many when requests carry batches: a run should last seconds either way."""
    requests: int
    commit_seconds: float
    few: int
    many: int
    """Waiting or finished tasks between which the cost of one task is compared."""
    scaled: int
    """Tasks in each measurement of that comparison."""


FULL = Sizes(
    repetitions=3,
    workflows=500,
    activities=1000,
    batched=3,
    requests=4000,
    commit_seconds=0.5,
    few=1000,
    many=100_000,
    scaled=300,
)
QUICK = Sizes(
    repetitions=1,
    workflows=20,
    activities=20,
    batched=2,
    requests=50,
    commit_seconds=0.02,
    few=20,
    many=100,
    scaled=20,
)
