"""What every use case is handed: the store, and the policies in force."""

from __future__ import annotations

from msgspec import Struct, field

from penstock.core.history.bounds import Bounds
from penstock.engine.answer_pace import AnswerPace
from penstock.engine.lookout import Lookout
from penstock.engine.standstill import Standstill
from penstock.engine.upkeep import Upkeep
from penstock.ports.archive import Archive
from penstock.ports.coordination import Coordination, InProcess
from penstock.ports.entropy import Entropy
from penstock.ports.store import Store
from penstock.ports.wakeups import Wakeups
from penstock.settings import Settings


class House(Struct, frozen=True):
    store: Store
    wakeups: Wakeups
    entropy: Entropy
    settings: Settings
    standstill: Standstill = field(default_factory=Standstill)
    coordination: Coordination = field(default_factory=InProcess)
    answer_pace: AnswerPace = field(default_factory=AnswerPace)
    upkeep: Upkeep = field(default_factory=Upkeep)
    lookout: Lookout = field(default_factory=Lookout)
    archive: Archive | None = None
    """Where histories go before they are deleted; None: nowhere."""

    @property
    def journals(self) -> bool:
        """Whether leases are told in the journal."""
        return self.store.journals

    @property
    def bounds(self) -> Bounds:
        limits = self.settings.limits
        return Bounds(
            open_activities_max=limits.pending_activities_max,
            open_timers_max=limits.pending_timers_max,
            events_max=limits.history_events_max,
            open_children_max=limits.pending_children_max,
            open_updates_max=limits.pending_updates_max,
            unseen_signals_max=limits.pending_signals_max,
        )
