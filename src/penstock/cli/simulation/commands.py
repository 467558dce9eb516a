"""Commands that run the scheduler on a virtual clock. They change nothing anywhere; only `live` needs a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from penstock.cli.grammar import CommandReach, NounGroup
from penstock.cli.output.exits import echo_err
from penstock.cli.simulation.background_runs import (
    CHANGES,
    LOAD,
    SAMPLING,
    parsed_changes,
    read_load,
    refusals,
    simulated,
)
from penstock.cli.simulation.find import find
from penstock.cli.simulation.job import job
from penstock.cli.simulation.live import live
from penstock.cli.transport.session import CliSession


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
@LOAD
@CHANGES
@SAMPLING
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

    with refusals():
        found = read_load(load, tasks_max)
        changes = parsed_changes(settings, workers, keys, kills)
        comparison, result = simulated(
            found, changes, seed=seed, replications=replications, tasks_max=tasks_max
        )
    if plot is not None:
        for path in write_charts(plot, comparison.runs):
            echo_err(f"Plotted {path}")
    session.show_data(msgspec.to_builtins(result), partial(draw, result=result))


simulate.add_command(find)
simulate.add_command(live)
simulate.add_command(job)
