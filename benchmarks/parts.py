"""The parts of the program: what each is called, where its findings stand in a report, and how it is measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.accuracy import Accuracy
from benchmarks.admission import Admission
from benchmarks.beside import Beside
from benchmarks.dashboard import Dashboard
from benchmarks.dispatch_rates import DispatchRates
from benchmarks.footprint import Footprint
from benchmarks.peer_measures import Workload
from benchmarks.profiles import Profiles
from benchmarks.route_lookup import resolving
from benchmarks.scaling import Scaling
from benchmarks.sdk import Sdk
from benchmarks.several_servers import SeveralServers
from benchmarks.side_by_side import SYSTEMS, SideBySide
from benchmarks.sizes import FULL, Sizes
from benchmarks.soak import Soak
from benchmarks.stands import Ground, StoreName
from benchmarks.workers import Workers
from benchmarks.workflows import Workflows
from benchmarks.workloads import Say

LIMITS = "limits"
QUICK_MINUTES = 0.02


@dataclass(frozen=True, slots=True)
class Choice:
    """What of a part is wanted."""

    systems: Collection[str] = SYSTEMS
    workloads: Collection[Workload] = tuple(Workload)
    repetitions: int | None = None
    minutes: float = 60.0


@dataclass(frozen=True, slots=True)
class Run:
    ground: Ground
    sizes: Sizes
    stores: Sequence[StoreName]
    say: Say
    choice: Choice = field(default_factory=Choice)

    @property
    def is_full(self) -> bool:
        return self.sizes is FULL

    @property
    def some_stores(self) -> Sequence[StoreName]:
        """One is enough for a smoke."""
        return self.stores if self.is_full else self.stores[:1]


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    key: str
    """Where its findings stand in a report."""
    measure: Callable[[Run], Any]
    only_if_named: bool = False
    """Too long to be part of every run."""


def _peers(run: Run) -> dict[str, Any]:
    return SideBySide(
        run.ground,
        run.say,
        quick=not run.is_full,
        repetitions=run.choice.repetitions or run.sizes.repetitions,
        systems=run.choice.systems,
        workloads=run.choice.workloads,
    ).run(run.stores)


def _profile(run: Run) -> dict[str, Any]:
    quick = not run.is_full
    return Profiles(run.ground, run.say, quick=quick, workloads=run.choice.workloads).run(run.stores)


def _accuracy(run: Run) -> Any:
    return Accuracy(run.ground, run.sizes, run.say, install=run.is_full).run(run.stores)


def _sdk(run: Run) -> Any:
    return Sdk(run.ground, run.sizes, run.say, peers=run.is_full).run(run.some_stores)


def _workers(run: Run) -> Any:
    return Workers(run.ground, run.sizes, run.say, peers=run.is_full).run(run.some_stores)


def _soak(run: Run) -> Any:
    return Soak(run.ground, run.say, run.choice.minutes if run.is_full else QUICK_MINUTES).run(run.stores)


PARTS = (
    Part("scaling", "scaling", lambda run: Scaling(run.ground, run.sizes, run.say).run(run.stores)),
    Part(
        "dispatch-rates",
        "dispatch_rates",
        lambda run: DispatchRates(run.ground, run.sizes, run.say).run(run.stores),
    ),
    Part("admission", "admission", lambda run: Admission(run.ground, run.sizes, run.say).run(run.stores)),
    Part("workflows", "workflows", lambda run: Workflows(run.ground, run.sizes, run.say).run(run.stores)),
    Part("accuracy", "accuracy", _accuracy),
    Part("sdk", "sdk", _sdk),
    Part("workers", "workers", _workers),
    Part("resolving", "resolving", lambda run: resolving(run.say)),
    Part("peers", "peers", _peers),
    Part("profile", "profile", _profile),
    Part("beside", "beside", lambda run: Beside(run.ground, run.sizes, run.say).run(run.stores)),
    Part("footprint", "footprint", lambda run: Footprint(run.ground, run.sizes, run.say).run(run.stores)),
    Part("servers", "servers", lambda run: SeveralServers(run.ground, run.sizes, run.say).run(run.stores)),
    Part("dashboard", "dashboard", lambda run: Dashboard(run.ground, run.sizes, run.say).run(run.stores)),
    Part("soak", "soak", _soak, only_if_named=True),
)
BY_NAME: Mapping[str, Part] = {part.name: part for part in PARTS}
