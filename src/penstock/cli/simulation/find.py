"""`penstock simulate find`: the smallest change that meets a target."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import Exit
from penstock.cli.simulation.background_runs import (
    SAMPLING,
    in_background,
    read_load,
    refusals,
    run_workload,
    simulated,
)
from penstock.cli.simulation.live import live_state
from penstock.cli.transport.session import CliSession
from penstock.errors import InvalidInput, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.output.screen import Screen
    from penstock.simulator.live.live_model import LiveModel
    from penstock.simulator.load_source import LoadSource
    from penstock.simulator.search.search import FoundChange
    from penstock.simulator.search.targets import SearchTarget

LIVE = "live"
_HORIZON_FACTOR = 2


@verb(
    "find",
    example="penstock simulate find monday.toml --target 'p95 wait of tenant-a in invoices <= 30s' --may workers",
)
@click.argument("load", metavar="MODEL|TRACE|live", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--target",
    required=True,
    metavar="TEXT",
    help="'p95 wait [of KEY] in QUEUE <= TIME', 'backlog of QUEUE gone within TIME' or '… gone by 09:00' (UTC).",
)
@click.option(
    "--may",
    "knobs",
    multiple=True,
    required=True,
    metavar="WHAT",
    help="What may be raised: workers[:QUEUE], queue:NAME.SETTING, queue:NAME.weights.KEY …; repeatable, in order.",
)
@SAMPLING
@click.pass_obj
def find(
    session: CliSession,
    load: Path,
    target: str,
    knobs: tuple[str, ...],
    seed: int,
    replications: int,
    tasks_max: int,
) -> None:
    """Find the smallest change that meets a target; exit code 1 if there is none."""
    import msgspec

    from penstock.cli.simulation.display import draw, draw_answer
    from penstock.simulator.search.targets import parse_target

    with refusals():
        wanted = parse_target(target)
        loaded = _load(session, load, wanted, tasks_max)
        found = find_change(loaded, wanted, knobs, seed=seed, replications=replications, tasks_max=tasks_max)

    def show(screen: Screen) -> None:
        draw_answer(screen, found)
        if found.result is not None:
            draw(screen, found.result)

    session.show_data(msgspec.to_builtins(found), show)
    raise click.exceptions.Exit(int(Exit.DONE if found.is_met else Exit.REFUSED))


def find_change(
    load: LoadSource,
    target: SearchTarget,
    knobs: Sequence[str],
    *,
    seed: int,
    replications: int,
    tasks_max: int,
) -> FoundChange:
    """Search, confirm what was found with other seeds, and say what it costs and what binds next.

    Args:
        load: the load as it is.
        target: what is to be met.
        knobs: what may be raised, as on the command line.
        seed: of the trials, and the first one of the replications.
        replications: most of them.
        tasks_max: larger workloads are refused.
    """
    from penstock.simulator.search.consequences import agreement, cost, next_limit
    from penstock.simulator.search.knobs import parse_knob
    from penstock.simulator.search.search import FoundChange, Search

    first = load.workload(seed, tasks_max)
    may = [parse_knob(first, each) for each in knobs]
    with in_background() as on_progress:
        run = partial(run_workload, on_progress)
        search = Search(load, target, may, run, seed=seed, tasks_max=tasks_max)
        import asyncio

        answer = asyncio.run(search.find())
    names = tuple(map(str, answer.changes))
    if not answer.changes:
        return FoundChange(answer.sentence, answer.is_met, names, answer.trials)
    comparison, result = simulated(
        load, answer.changes, seed=seed, replications=replications, tasks_max=tasks_max
    )
    after = load.with_changes(answer.changes).workload(seed, tasks_max)
    sentences = [answer.sentence]
    is_shrunk = load.time_factor != 1.0
    if not is_shrunk:
        sentences.append(agreement(search.target, search.name, comparison.runs[1]))
    sentences += [cost(target, result), next_limit(after, search.name)]
    sentence = " ".join(each for each in sentences if each)
    return FoundChange(sentence, True, names, answer.trials, None if is_shrunk else result)


def _load(session: CliSession, load: Path, target: SearchTarget, tasks_max: int) -> LoadSource:
    """The state of the server if `live` is asked for, else a file."""
    if str(load) != LIVE:
        return read_load(load, tasks_max)
    state = live_state(session.connect(), target.queue, None, None)
    return live_load(state, target)


def live_load(state: LiveModel, target: SearchTarget) -> LoadSource:
    """The state of a server, for a search. Raises `InvalidInput` for targets other than the end of a backlog."""
    from penstock.simulator.live.live_load import LiveLoad

    if target.quantile is not None:
        message = (
            "From the state of a server the end of a backlog is found: 'backlog of QUEUE gone within TIME'."
        )
        raise InvalidInput(Reason.VALIDATION_FAILED, message)
    return LiveLoad.of(state, target.at_start(state.now_ms).most_ms * _HORIZON_FACTOR)
