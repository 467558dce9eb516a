"""How much is measured: enough for a figure in `FULL`, enough for a smoke in `QUICK`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SdkSizes:
    workflows: int
    workflows_of_peers: int
    """Peers are slower: fewer take as long."""
    steps: tuple[int, ...]
    """Activities of a workflow, one after the other."""
    tasks: int
    tasks_of_peers: int
    asked: int
    """Tasks on an idle system."""
    fan_out: int
    replayed_events: int
    cached_events: tuple[int, int]
    """How long the histories of two cached runs are: short and long."""
    updates: int
    """Of each of these two."""
    idle_seconds: float


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
    accuracy_dispatches: int
    """Dispatches over which the shares of three weights are looked at."""
    accuracy_keys: tuple[int, ...]
    """How many equal keys share a queue: few, and then more."""
    rate_keys: tuple[int, ...]
    """Keys over which the largest backlog is spread when dispatch rates are compared."""
    rate_backlogs: tuple[int, ...]
    """Backlogs that are compared, each of `rate_shared` keys."""
    rate_shared: int
    rate_rounds: int
    rate_dispatches: dict[int, int]
    """How many tasks are dispatched in each section, by the most that one claim takes."""
    limited_rounds: int
    limited_dispatches: dict[int, int]
    """The same where limits are compared."""
    limited_queues: int
    """Queues that share one budget group."""
    hot_dispatches: dict[int, int]
    """How many tasks each of several servers of a group takes in a section, by the most that one claim takes."""
    why_backlog: int
    why_keys: tuple[int, ...]
    why_asked: int
    history_events: tuple[int, ...]
    """How long histories are: short, more than a page, and long."""
    history_runs: int
    """Runs of each length."""
    fan_out: int
    signals: int
    timers: int
    idle_seconds: float
    """How long a server with sleeping timers is left alone."""
    listed: tuple[int, int]
    """Closed runs among which some are looked for: few and many."""
    listed_asked: int
    listed_counted: int
    worker_idle_seconds: float
    """How long a worker program is left alone."""
    idle_pollers: int
    """Polls that wait beside the work that is measured."""
    beside_rounds: int
    beside_tasks: int
    footprint_waiting: int
    footprint_open: int
    several: int
    """Tasks that several servers do together in one measurement."""
    dashboard_runs: int
    dashboard_waiting: tuple[int, int]
    """Waiting tasks, and the keys that they have."""
    dashboard_events: int
    """Of one long run."""
    dashboard_asked: int
    dashboard_rounds: int
    dashboard_tasks: int
    dashboard_seconds: float
    """How long a server with open pages is left alone."""
    sdk: SdkSizes


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
    accuracy_dispatches=600,
    accuracy_keys=(3, 1000, 10_000),
    rate_keys=(1, 100, 10_000, 1_000_000),
    rate_backlogs=(1000, 100_000, 1_000_000),
    rate_shared=100,
    rate_rounds=15,
    rate_dispatches={1: 200, 50: 400},
    limited_rounds=9,
    limited_dispatches={1: 200, 50: 400},
    limited_queues=100,
    hot_dispatches={1: 200, 50: 1000},
    why_backlog=100_000,
    why_keys=(1, 1000),
    why_asked=50,
    history_events=(10, 1000, 10_000),
    history_runs=60,
    fan_out=1000,
    signals=1000,
    timers=100_000,
    idle_seconds=20.0,
    listed=(10_000, 1_000_000),
    listed_asked=50,
    listed_counted=2,
    worker_idle_seconds=10.0,
    idle_pollers=2000,
    beside_rounds=5,
    beside_tasks=300,
    footprint_waiting=10_000,
    footprint_open=500,
    several=2000,
    dashboard_runs=1_000_000,
    dashboard_waiting=(100_000, 10_000),
    dashboard_events=50_000,
    dashboard_asked=40,
    dashboard_rounds=5,
    dashboard_tasks=4_000,
    dashboard_seconds=20.0,
    sdk=SdkSizes(
        workflows=600,
        workflows_of_peers=300,
        steps=(1, 5),
        tasks=2000,
        tasks_of_peers=400,
        asked=100,
        fan_out=1000,
        replayed_events=10_000,
        cached_events=(10, 10_000),
        updates=240,
        idle_seconds=10.0,
    ),
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
    accuracy_dispatches=100,
    accuracy_keys=(3, 150),
    rate_keys=(1, 20, 100, 2000),
    rate_backlogs=(200, 1000, 2000),
    rate_shared=20,
    rate_rounds=1,
    rate_dispatches={1: 20, 50: 100},
    limited_rounds=1,
    limited_dispatches={1: 20, 50: 100},
    limited_queues=10,
    hot_dispatches={1: 20, 50: 100},
    why_backlog=1000,
    why_keys=(1, 100),
    why_asked=3,
    history_events=(10, 520, 600),
    history_runs=2,
    fan_out=30,
    signals=20,
    timers=100,
    idle_seconds=0.2,
    listed=(200, 400),
    listed_asked=2,
    listed_counted=1,
    worker_idle_seconds=0.1,
    idle_pollers=40,
    beside_rounds=1,
    beside_tasks=20,
    footprint_waiting=100,
    footprint_open=10,
    several=80,
    dashboard_runs=400,
    dashboard_waiting=(200, 20),
    dashboard_events=50,
    dashboard_asked=2,
    dashboard_rounds=1,
    dashboard_tasks=20,
    dashboard_seconds=0.4,
    sdk=SdkSizes(
        workflows=4,
        workflows_of_peers=4,
        steps=(1, 5),
        tasks=10,
        tasks_of_peers=10,
        asked=3,
        fan_out=10,
        replayed_events=30,
        cached_events=(5, 20),
        updates=3,
        idle_seconds=0.1,
    ),
)
