"""What the commands of `simulate` share: options, loads, and runs in this process with low priority."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.grammar import with_options
from penstock.cli.output.exits import CommandError, Exit
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.simulator.changes import Change
    from penstock.simulator.comparison import SimulationComparison, SimulationResult
    from penstock.simulator.load_source import LoadSource
    from penstock.simulator.measures import Measures
    from penstock.simulator.workload import Workload

TASKS_MAX = 200_000
NICENESS = 10
FILE = click.argument("model", type=click.Path(path_type=Path, dir_okay=False))
LOAD = click.argument("load", type=click.Path(path_type=Path, dir_okay=False))
LIMITS_AND_LOAD = with_options(
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="LIMIT=VALUE",
        help="Change a limit: queue:NAME.SETTING, group:NAME.SETTING, namespace.SETTING, cluster.SETTING; repeatable.",
    ),
    click.option(
        "--workers",
        multiple=True,
        metavar="[QUEUE=]COUNT",
        help="Change the number of workers: 20, 2x; repeatable.",
    ),
    click.option(
        "--key",
        "keys",
        multiple=True,
        metavar="KEY=FACTOR",
        help="Change the load of a fairness key: a=2x; repeatable.",
    ),
)
CHANGES = with_options(
    LIMITS_AND_LOAD,
    click.option(
        "--kill",
        "kills",
        multiple=True,
        metavar="QUEUE@TIME",
        help="Kill the workers of a queue: q@10m; repeatable.",
    ),
)
SEED = click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the first replication."
)
SAMPLING = with_options(
    SEED,
    click.option(
        "--replications",
        type=click.IntRange(1, 100),
        default=10,
        show_default=True,
        help="Most replications; it stops earlier once p95 waits are known to 5 %.",
    ),
    click.option(
        "--tasks-max",
        type=click.IntRange(1),
        default=TASKS_MAX,
        show_default=True,
        help="Refuse larger workloads: a million tasks take minutes and gigabytes.",
    ),
)


def parsed_changes(
    settings: Sequence[str], workers: Sequence[str], keys: Sequence[str], kills: Sequence[str]
) -> list[Change]:
    """The changes of the command line, in a fixed order."""
    from penstock.simulator import changes

    return [
        *map(changes.parse_setting, settings),
        *map(changes.parse_workers, workers),
        *map(changes.parse_key_load, keys),
        *map(changes.parse_kill, kills),
    ]


def simulated(
    load: LoadSource, changes: Sequence[Change], *, seed: int, replications: int, tasks_max: int
) -> tuple[SimulationComparison, SimulationResult]:
    """Run the replications in this process, with low priority and a progress bar."""
    import asyncio
    from importlib.metadata import version

    from penstock.simulator.balance import overloads
    from penstock.simulator.comparison import SimulationComparison
    from penstock.simulator.load_source import ModelLoad
    from penstock.simulator.traces.calibration import calibrate
    from penstock.simulator.traces.trace_load import TraceLoad

    comparison = SimulationComparison(load, changes, seed=seed, tasks_max=tasks_max)
    warnings: list[str] = []
    if isinstance(load, ModelLoad):
        warnings += map(str, overloads(load.with_changes(changes).model))
    with in_background() as on_progress:
        asyncio.run(comparison.replicate(partial(run_workload, on_progress), replications))
    calibration = None
    if isinstance(load, TraceLoad):
        warnings += load.warnings
        calibration = calibrate(load, comparison.runs[0][0])
    return comparison, comparison.result(version("penstock"), warnings, calibration)


def read_load(path: Path, tasks_max: int) -> LoadSource:
    """A model, or a trace."""
    from penstock.simulator.load_source import ModelLoad
    from penstock.simulator.model_file import read_model
    from penstock.simulator.traces.trace_file import is_trace, read_trace
    from penstock.simulator.traces.trace_load import TraceLoad

    if is_trace(path):
        return TraceLoad.of(read_trace(path), tasks_max)
    return ModelLoad(read_model(path))


async def run_workload(
    on_progress: Callable[[str, int, int], None], workload: Workload, label: str
) -> Measures:
    from penstock import assembly
    from penstock.simulator.run import Simulation

    async with assembly.simulated(workload.start_ms) as host:
        return await Simulation(host, workload, partial(on_progress, label)).run()


@contextmanager
def refusals() -> Iterator[None]:
    """What the model or the changes get wrong is a usage error; nothing was simulated then."""
    try:
        yield
    except InvalidInput as refused:
        raise SimulationRefused(refused.reason.value, refused.message) from None


class SimulationRefused(CommandError):
    """A model or change that cannot be simulated (exit code 2)."""

    exit_code = int(Exit.USAGE)

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(
            reason, message, "Nothing was simulated. The guide Rehearsal describes models and changes."
        )


@contextmanager
def in_background() -> Iterator[Callable[[str, int, int], None]]:
    """Give way to other processes from now on, and show how far it is."""
    if os.nice(0) < NICENESS:
        os.nice(NICENESS)
    with _progress() as on_progress:
        yield on_progress


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal, and nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _label, _done, _all: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("simulating", total=None)

        def show(label: str, done: int, all_tasks: int) -> None:
            progress.update(bar, description=label, completed=done, total=all_tasks)

        yield show


def limit_process(memory_bytes: int, cpu_s: int) -> None:
    """Have the system end this process if it takes more memory or time than a simulation should.

    Args:
        memory_bytes: the most address space.
        cpu_s: the most time on a processor.
    """
    import resource

    for what, most in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, cpu_s)):
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
