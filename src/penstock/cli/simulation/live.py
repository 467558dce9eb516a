"""`penstock simulate live`: when is the backlog of a running server gone?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.grammar import verb
from penstock.cli.simulation.background_runs import (
    LIMITS_AND_LOAD,
    SEED,
    in_background,
    limit_process,
    parsed_changes,
    refusals,
    run_workload,
)
from penstock.cli.transport.connection import PathIdentifier
from penstock.cli.transport.session import CliSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.cli.transport.connection import ServerConnection
    from penstock.simulator.live.live_model import LiveModel
    from penstock.simulator.live.server_bodies import QueueBodies

QUEUES_MAX = 20
"""So many queues with the longest backlogs, if none is named."""
KINDS = ("activity", "workflow")
_MEMORY_BYTES = 2 * 1024**3
_CPU_S = 120


@verb("live", example="penstock simulate live --queue invoices --workers invoices=20")
@click.option("--queue", metavar="NAME", help="Only this queue; those that share its budget group run along.")
@LIMITS_AND_LOAD
@click.option(
    "--change",
    "change_sets",
    multiple=True,
    metavar="ID",
    help="Change what a change set changes; repeatable.",
)
@click.option("--takes", metavar="TIME", help="How long tasks take; measured if left out.")
@click.option(
    "--arrivals",
    type=click.FloatRange(0, 10_000_000),
    metavar="PER_MINUTE",
    help="Tasks that arrive in a minute in each queue; measured if left out.",
)
@SEED
@click.pass_obj
def live(
    session: CliSession,
    queue: str | None,
    settings: tuple[str, ...],
    workers: tuple[str, ...],
    keys: tuple[str, ...],
    change_sets: tuple[str, ...],
    takes: str | None,
    arrivals: float | None,
    seed: int,
) -> None:
    """Forecast from the state of the server when the backlog is gone, as it is and with changes."""
    from importlib.metadata import version

    import msgspec

    from penstock.cli.simulation.forecast_display import draw_forecast
    from penstock.simulator.changes import of_change_set
    from penstock.simulator.live.forecast import LiveForecast

    connection = session.connect()
    with refusals():
        changes = parsed_changes(settings, workers, keys, ())
        for each in change_sets:
            changes += of_change_set(connection.get("change-sets", PathIdentifier(each)).body["items"])
        state = live_state(connection, queue, takes, arrivals)
        limit_process(_MEMORY_BYTES, _CPU_S)
        forecast = LiveForecast(state, changes, seed=seed)
        with in_background() as on_progress:
            import asyncio

            found = asyncio.run(forecast.find(partial(run_workload, on_progress), version("penstock"), queue))
    session.show_data(msgspec.to_builtins(found), partial(draw_forecast, forecast=found))


def live_state(
    connection: ServerConnection, queue: str | None, takes: str | None, arrivals: float | None
) -> LiveModel:
    """The state of the server as a model.

    Args:
        connection: to the server.
        queue: the queue in question; None: those with the longest backlogs.
        takes: how long tasks take; None: as measured.
        arrivals: tasks per minute; None: as measured.
    """
    from penstock.simulator.live.live_model import Given, live_model
    from penstock.simulator.live.server_bodies import ServerBodies, instant
    from penstock.simulator.model_file import milliseconds

    given = Given(None if takes is None else milliseconds(takes), arrivals)
    names = _names(connection, queue)
    bodies = [_queue_bodies(connection, each) for each in names]
    shown = connection.get("workers").body["workers"]
    now_ms = max((instant(each.series["activity"]["as_of"]) for each in bodies), default=0)
    return live_model(ServerBodies(now_ms, bodies, shown), given)


def _names(connection: ServerConnection, queue: str | None) -> list[str]:
    """The queues in question: the one that is named with those of its budget groups, or the longest."""
    if queue is None:
        found = connection.get("task-queues").body["task_queues"]
        waiting = {each["name"]: _waiting(each["stats"]) for each in found}
        longest = sorted(waiting, key=lambda each: (-waiting[each], each))[:QUEUES_MAX]
        return [each for each in longest if waiting[each]]
    names = [queue]
    for kind in KINDS:
        limits = _limits(connection, queue, kind)
        group = limits["limits"]["dispatch_budget_group"]["value"]
        if group is not None:
            of_group = connection.get("budget-groups", PathIdentifier(group)).body["task_queues"]
            names += [name for each in of_group if (name := _name(each)) not in names]
    return names[:QUEUES_MAX]


def _name(shown: Any) -> str:
    return str(shown["task_queue"] if isinstance(shown, dict) else shown)


def _waiting(stats: dict[str, Any]) -> int:
    parts = (stats[f"{kind}_tasks"] for kind in KINDS)
    return sum(each["ready_count"] + each["delayed_count"] for each in parts)


def _queue_bodies(connection: ServerConnection, name: str) -> QueueBodies:
    from penstock.simulator.live.server_bodies import QueueBodies

    path: Sequence[Any] = ("task-queues", PathIdentifier(name))
    return QueueBodies(
        name,
        connection.get(*path).body,
        {kind: connection.get(*path, "config", query={"task_queue_type": kind}).body for kind in KINDS},
        {kind: _limits(connection, name, kind) for kind in KINDS},
        {
            kind: connection.get("metrics", "series", query={"queue": name, "kind": kind}).body
            for kind in KINDS
        },
    )


def _limits(connection: ServerConnection, name: str, kind: str) -> dict[str, Any]:
    query = {"task_queue_type": kind}
    found: dict[str, Any] = connection.get("task-queues", PathIdentifier(name), "limits", query=query).body
    return found
