"""Commands that run the scheduler on a virtual clock. They need no server, and change nothing anywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.grammar import CommandReach, NounGroup, with_options
from penstock.cli.output.exits import CommandError, Exit, echo_err
from penstock.cli.transport.session import CliSession
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.cli.output.screen import Screen
    from penstock.simulator.changes import Change
    from penstock.simulator.comparison import SimulationComparison, SimulationResult
    from penstock.simulator.load_source import LoadSource
    from penstock.simulator.measures import Measures
    from penstock.simulator.model_file import ModelFile
    from penstock.simulator.workload import Workload

TASKS_MAX = 200_000
NICENESS = 10
_FILE = click.argument("model", type=click.Path(path_type=Path, dir_okay=False))
_LOAD = click.argument("load", type=click.Path(path_type=Path, dir_okay=False))
_CHANGES = with_options(
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
    click.option(
        "--kill",
        "kills",
        multiple=True,
        metavar="QUEUE@TIME",
        help="Kill the workers of a queue: q@10m; repeatable.",
    ),
)
_SAMPLING = with_options(
    click.option(
        "--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the first replication."
    ),
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


class SimulateNoun(NounGroup):
    """The noun `simulate`, which also accepts a model instead of a verb: `penstock simulate monday.toml`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands and (args[0].startswith("-") or "." in args[0] or "/" in args[0]):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@click.group(
    "simulate",
    cls=SimulateNoun,
    example="penstock simulate monday.toml --set queue:invoices.max_active_leases=5",
)
def simulate() -> None:
    """Rehearse a load on the real scheduler and a virtual clock, with and without a change."""


@simulate.verb(
    "run",
    reach=CommandReach.HERE,
    example="penstock simulate run monday.toml --set queue:invoices.max_active_leases=5 --plot out",
)
@_LOAD
@_CHANGES
@_SAMPLING
@click.option(
    "--plot", type=click.Path(path_type=Path, file_okay=False), help="Write plots (SVG) to this directory."
)
@click.pass_obj
def run(
    session: CliSession,
    /,
    load: Path,
    settings: tuple[str, ...],
    workers: tuple[str, ...],
    keys: tuple[str, ...],
    kills: tuple[str, ...],
    seed: int,
    replications: int,
    tasks_max: int,
    plot: Path | None,
) -> None:
    """Simulate a model or a trace as it is; with changes, also with them, and compare."""
    import msgspec

    from penstock.cli.simulation.display import draw
    from penstock.simulator.charts import write_charts

    with _refusals():
        found = _load(load, tasks_max)
        changes = parsed_changes(settings, workers, keys, kills)
        comparison, result = simulated(
            found, changes, seed=seed, replications=replications, tasks_max=tasks_max
        )
    if plot is not None:
        for path in write_charts(plot, comparison.runs):
            echo_err(f"Plotted {path}")
    session.show_data(msgspec.to_builtins(result), partial(draw, result=result))


@simulate.verb(
    "find",
    reach=CommandReach.HERE,
    example="penstock simulate find monday.toml --target 'p95 wait of tenant-a in invoices <= 30s' --may workers",
)
@_FILE
@click.option(
    "--target",
    required=True,
    metavar="TEXT",
    help="'p95 wait [of KEY] in QUEUE <= TIME' or 'backlog of QUEUE gone within TIME'.",
)
@click.option(
    "--may",
    "knobs",
    multiple=True,
    required=True,
    metavar="WHAT",
    help="What may be raised: workers[:QUEUE], queue:NAME.SETTING, queue:NAME.weights.KEY …; repeatable, in order.",
)
@_SAMPLING
@click.pass_obj
def find(
    session: CliSession,
    /,
    model: Path,
    target: str,
    knobs: tuple[str, ...],
    seed: int,
    replications: int,
    tasks_max: int,
) -> None:
    """Find the smallest change that meets a target; exit code 1 if there is none."""
    import asyncio

    import msgspec

    from penstock.cli.simulation.display import draw, draw_answer
    from penstock.simulator.load_source import ModelLoad
    from penstock.simulator.search import Search, parse_knob, parse_target

    with _refusals():
        loaded = _read(model)
        wanted, may = parse_target(target), [parse_knob(loaded, each) for each in knobs]
        with _in_background() as on_progress:
            search = Search(
                loaded, wanted, may, partial(_run_workload, on_progress), seed=seed, tasks_max=tasks_max
            )
            answer = asyncio.run(search.find())
        result = None
        if answer.changes:
            _, result = simulated(
                ModelLoad(loaded), answer.changes, seed=seed, replications=replications, tasks_max=tasks_max
            )

    def show(screen: Screen) -> None:
        draw_answer(screen, answer)
        if result is not None:
            draw(screen, result)

    facts = {
        "sentence": answer.sentence,
        "is_met": answer.is_met,
        "changes": [str(each) for each in answer.changes],
        "trials": answer.trials,
    }
    session.show_data(facts | {"result": msgspec.to_builtins(result)}, show)
    raise click.exceptions.Exit(int(Exit.DONE if answer.is_met else Exit.REFUSED))


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
    with _in_background() as on_progress:
        asyncio.run(comparison.replicate(partial(_run_workload, on_progress), replications))
    calibration = None
    if isinstance(load, TraceLoad):
        warnings += load.warnings
        calibration = calibrate(load, comparison.runs[0][0])
    return comparison, comparison.result(version("penstock"), warnings, calibration)


def _load(path: Path, tasks_max: int) -> LoadSource:
    """A model, or a trace."""
    from penstock.simulator.load_source import ModelLoad
    from penstock.simulator.traces.trace_file import is_trace, read_trace
    from penstock.simulator.traces.trace_load import TraceLoad

    if is_trace(path):
        return TraceLoad.of(read_trace(path), tasks_max)
    return ModelLoad(_read(path))


async def _run_workload(
    on_progress: Callable[[str, int, int], None], workload: Workload, label: str
) -> Measures:
    from penstock import assembly
    from penstock.simulator.run import Simulation

    async with assembly.simulated(workload.start_ms) as host:
        return await Simulation(host, workload, partial(on_progress, label)).run()


def _read(path: Path) -> ModelFile:
    from penstock.simulator.model_file import read_model

    return read_model(path)


@contextmanager
def _refusals() -> Iterator[None]:
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
def _in_background() -> Iterator[Callable[[str, int, int], None]]:
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
