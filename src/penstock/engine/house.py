"""What every use case is handed: the store, and the policies in force."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.core.history.decide import Bounds
from penstock.engine.standstill import Standstill
from penstock.ports.entropy import Entropy
from penstock.ports.store import Store
from penstock.ports.wakeups import Wakeups
from penstock.settings import Settings


@dataclass(frozen=True, slots=True)
class House:
    store: Store
    wakeups: Wakeups
    entropy: Entropy
    settings: Settings
    standstill: Standstill = field(default_factory=Standstill)

    @property
    def bounds(self) -> Bounds:
        limits = self.settings.limits
        return Bounds(limits.pending_activities_max, limits.pending_timers_max, limits.history_events_max)
