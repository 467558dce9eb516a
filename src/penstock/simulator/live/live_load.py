"""The state of a server as a load: shrunk, so that a run of it takes a second or less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.simulator.changes import Change, changed
from penstock.simulator.live.fluid_scale import FluidScale, scale_for, shrunk
from penstock.simulator.live.live_model import LiveModel
from penstock.simulator.model_file import ModelFile, generate
from penstock.simulator.workload import Workload


class LiveLoad(Struct, frozen=True):
    """A load of which one run with one seed is simulated, until a horizon."""

    model: ModelFile
    now_ms: int
    horizon_ms: float
    scale: FluidScale

    @staticmethod
    def of(live: LiveModel, horizon_ms: float) -> LiveLoad:
        """The load of a state until a horizon, in milliseconds from now."""
        return LiveLoad(live.model, live.now_ms, horizon_ms, scale_for([live.model], horizon_ms))

    @property
    def is_random(self) -> bool:
        return True

    @property
    def time_factor(self) -> float:
        return self.scale.time

    @property
    def facts(self) -> Any:
        return [self.model, self.horizon_ms]

    def with_changes(self, changes: Sequence[Change]) -> LiveLoad:
        return replace(self, model=changed(self.model, changes))

    def workload(self, seed: int, tasks_max: int) -> Workload:
        found = generate(shrunk(self.model, self.scale, self.horizon_ms), seed, tasks_max)
        return replace(found, until_ms=found.duration_ms, start_ms=self.now_ms, until_clear=True)
