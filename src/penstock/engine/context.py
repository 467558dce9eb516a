"""The dependencies and process-wide state that every engine operation receives."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from penstock.core.attribution import Caller
from penstock.core.history.structural_limits import StructuralLimits
from penstock.engine.runtime.query_pace import QueryPace
from penstock.engine.runtime.query_polls import QueryPollRegistry
from penstock.engine.runtime.simulation_runs import SimulationRuns
from penstock.engine.runtime.stall_detector import StallDetector
from penstock.engine.runtime.start_log import StartLog
from penstock.engine.runtime.timeline_cache import TimelineCache
from penstock.engine.runtime.upkeep import Upkeep
from penstock.ports.archive import Archive
from penstock.ports.coordination import Coordination, InProcess
from penstock.ports.entropy import Entropy
from penstock.ports.objects import NoStorage, StorageDrivers
from penstock.ports.simulation_process import NoSimulations, SimulationProcess
from penstock.ports.store import Store
from penstock.ports.wakeups import Wakeups
from penstock.settings import Settings


class EngineContext(Struct, frozen=True):
    """Ports, settings and in-process state of one server. Created once by `assembly`, passed as `ctx`.

    A request gets a copy that names its caller.
    """

    store: Store
    wakeups: Wakeups
    entropy: Entropy
    settings: Settings
    stall_detector: StallDetector = field(default_factory=StallDetector)
    coordination: Coordination = field(default_factory=InProcess)
    query_pace: QueryPace = field(default_factory=QueryPace)
    upkeep: Upkeep = field(default_factory=Upkeep)
    starts: StartLog = field(default_factory=StartLog)
    query_polls: QueryPollRegistry = field(default_factory=QueryPollRegistry)
    drivers: StorageDrivers = field(default_factory=NoStorage)
    """The drivers of external storage."""
    timelines: TimelineCache[Any] = field(default_factory=TimelineCache)
    archive: Archive | None = None
    """Where histories are archived before they are deleted; None disables archiving."""
    simulations: SimulationProcess = field(default_factory=NoSimulations)
    """Where simulations run."""
    simulation_runs: SimulationRuns = field(default_factory=SimulationRuns)
    caller: Caller | None = None
    """Who sent the request; None in the server's own background duties."""

    @property
    def bounds(self) -> StructuralLimits:
        limits = self.settings.limits
        return StructuralLimits(
            open_activities_max=limits.pending_activities_max,
            open_timers_max=limits.pending_timers_max,
            events_max=limits.history_events_max,
            open_children_max=limits.pending_children_max,
            open_updates_max=limits.pending_updates_max,
            unseen_signals_max=limits.pending_signals_max,
        )
