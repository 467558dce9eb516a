"""The command that checks workflow code against histories that were recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.grammar import verb
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.cli.output.screen import Screen
    from penstock.sdk.replay.replayer import History, Replayer

QUERY_LIMIT = 100
_ADVICE = ". Code that open runs"
_MARGIN = 2


@verb(
    "replay",
    example="penstock workflow replay myapp.workflows --query \"WorkflowType = 'orders' AND Status = 'running'\"",
)
@click.argument("code", nargs=-1, required=True, metavar="MODULE[:NAME]...")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A history in a file, as `workflow export` writes it; repeat for more.",
)
@click.option("--workflow-id", metavar="ID", help="The history of this workflow, from the server.")
@click.option("--run", "--run-id", "run_id", metavar="RUN", help="This run of --workflow-id, not the newest.")
@click.option("--query", metavar="QUERY", help="The histories of all matching runs, from the server.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    default=QUERY_LIMIT,
    show_default=True,
    help="Most runs of --query, the newest first.",
)
@click.pass_obj
def replay_workflows(
    session: CliSession,
    code: Sequence[str],
    files: Sequence[Path],
    workflow_id: str | None,
    run_id: str | None,
    query: str | None,
    limit: int,
) -> None:
    """Replay recorded histories with the workflow classes of a module; exit code 1 if one is not deterministic."""
    _check(files, workflow_id, run_id, query)
    replayer = _replayer(code)
    if files:
        histories = _from_files(files)
    elif workflow_id is not None:
        histories = _from_run(session, workflow_id, run_id)
    else:
        histories = _from_query(session, str(query), limit)
    outcomes = _replay_outcome(session, replayer, histories)
    if session.json:
        show_json(json.dumps(_summary(outcomes), ensure_ascii=False))
    _conclude(outcomes)


def _check(files: Sequence[Path], workflow_id: str | None, run_id: str | None, query: str | None) -> None:
    named = [bool(files), workflow_id is not None, query is not None]
    if sum(named) != 1:
        raise click.UsageError("Select histories with --file, --workflow-id or --query.")
    if run_id is not None and workflow_id is None:
        raise click.UsageError("--run is a run of --workflow-id; name that as well.")


# The code


def _replayer(code: Sequence[str]) -> Replayer:
    from penstock.sdk.converters import DEFAULT
    from penstock.sdk.replay.replayer import Replayer
    from penstock.sdk.workflows.definitions import DefinitionError

    found = [_named(each) if ":" in each else _in_module(each) for each in code]
    workflows = dict.fromkeys(workflow for each in found for workflow in each.workflows)
    converters = [each.converter for each in found if each.converter is not None]
    try:
        return Replayer(workflows=list(workflows), data_converter=converters[0] if converters else DEFAULT)
    except DefinitionError as error:
        raise click.UsageError(str(error)) from None


@dataclass(frozen=True, slots=True)
class _Code:
    workflows: Sequence[type]
    converter: Any = None
    """The data converter of the app, if the code is an app or has one."""


def _named(path: str) -> _Code:
    from penstock.cli.user_code import load_named
    from penstock.sdk.app import Penstock

    found = load_named(
        path,
        lambda each: _is_workflow(each) or isinstance(each, Penstock),
        "a workflow class (under @workflow.defn) or an app",
    )
    return _app_code(found) if isinstance(found, Penstock) else _Code([found])


def _in_module(name: str) -> _Code:
    from penstock.cli.user_code import load_module
    from penstock.sdk.app import Penstock

    there = list(vars(load_module(name)).values())
    workflows = [each for each in there if _is_workflow(each)]
    if not workflows:
        raise click.UsageError(f"{name} has no workflow: none of its classes is under @workflow.defn.")
    apps = [each for each in there if isinstance(each, Penstock)]
    return _Code(workflows, apps[0].data_converter if len(apps) == 1 else None)


def _app_code(app: Any) -> _Code:
    from penstock.cli.user_code import load_module

    for module in app.include:
        load_module(module)
    if not app.workflows:
        raise click.UsageError(f"The app {app.name!r} has no workflow: add them with app.add(workflows=[…]).")
    return _Code(app.workflows, app.data_converter)


def _is_workflow(found: object) -> bool:
    from penstock.sdk.workflows.definitions import DEFINITION

    return isinstance(found, type) and DEFINITION in vars(found)


# The histories


def _from_files(files: Sequence[Path]) -> Iterator[History]:
    from penstock.sdk.replay.replayer import History

    for path in files:
        try:
            yield History.from_file(path)
        except (ValueError, TypeError, OSError) as error:
            raise CommandError(
                "history_unreadable",
                f"{path}: {error}",
                "Write one with `penstock workflow export ID -o FILE`.",
            ) from error


def _from_run(session: CliSession, workflow_id: str, run_id: str | None) -> Iterator[History]:
    from penstock.cli.workflows.run_options import path_of

    connection = session.connect()
    yield _fetched(session, connection.get(*path_of(workflow_id, run_id)).body)


def _from_query(session: CliSession, query: str, limit: int) -> Iterator[History]:
    from penstock.cli.transport.pages import LIST_PAGE_MAX, read_pages

    found = read_pages(
        session.connect(),
        "workflows",
        rows="workflows",
        limit=limit,
        page_max=LIST_PAGE_MAX,
        query={"query": query},
    ).body
    if not found["workflows"]:
        raise CommandError("nothing_found", "No run fits the query, so nothing was replayed.")
    for row in found["workflows"]:
        yield _fetched(session, row)
    if found.get("next_page_token"):
        echo_err(f"The newest {len(found['workflows'])} were replayed. See more with --limit.")


def _fetched(session: CliSession, described: Mapping[str, Any]) -> History:
    from penstock.cli.workflows.history.show import read_history
    from penstock.sdk.replay.replayer import History

    workflow_id, run_id = str(described["workflow_id"]), str(described["run_id"])
    events = read_history(session.connect(), workflow_id, run_id, None, derived=False).body["events"]
    return History.read({**described, "events": events})


# Results


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of replaying one history."""

    history: History
    failure: Exception | None

    @property
    def workflow_type(self) -> str | None:
        try:
            return self.history.type
        except ValueError:
            return None

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "workflow_id": self.history.workflow_id,
            "run_id": self.history.run_id,
            "workflow_type": self.workflow_type,
            "events": len(self.history.events),
            "fits": self.failure is None,
        }
        if self.failure is not None:
            facts |= {"error": type(self.failure).__name__, "message": str(self.failure)} | self.divergence()
        return facts

    def divergence(self) -> dict[str, Any]:
        """The first event at which code and history part, as each of them has it."""
        from penstock.sdk.replay.errors import NonDeterminismError

        found = self.failure
        if not isinstance(found, NonDeterminismError):
            return {}
        where = str(found).partition(_ADVICE)[0].partition(f"issued {found.asked}")[2].lstrip(", ")
        return {
            "sequence": found.sequence,
            "recorded": found.recorded,
            "asked": found.asked,
            "where": where or None,
        }


def _replay_outcome(
    session: CliSession, replayer: Replayer, histories: Iterator[History]
) -> list[ReplayOutcome]:
    """Replay one after the other; a person sees each as it is done."""
    from penstock.cli.output.screen import Screen

    screen = None if session.json else Screen()
    outcomes: list[ReplayOutcome] = []
    for history in histories:
        outcomes.append(ReplayOutcome(history, _replay(replayer, history)))
        if screen is not None:
            _draw(screen, outcomes[-1])
    return outcomes


def _replay(replayer: Replayer, history: History) -> Exception | None:
    from penstock.sdk.replay.errors import WorkflowTaskError

    try:
        return replayer.replay(history).failure
    except (WorkflowTaskError, ValueError) as error:  # of a type that this code does not have, or of none
        return error


def _draw(screen: Screen, outcome: ReplayOutcome) -> None:
    from penstock.cli.output.screen import ScreenCell, name, plain

    history = outcome.history
    mark = ScreenCell("fits", "green") if outcome.failure is None else ScreenCell("does not fit", "red")
    counted = ScreenCell(f"{len(history.events)} events", "dim")
    screen.line(mark, name(history.workflow_id), plain(outcome.workflow_type), counted)
    if outcome.failure is None:
        return
    parted = outcome.divergence()
    if not parted:
        screen.below(plain(str(outcome.failure)), _MARGIN)
        return
    screen.below(ScreenCell(f"event {parted['sequence']} of the history: {parted['recorded']}"), _MARGIN)
    screen.below(ScreenCell(f"the code asks for: {parted['asked']}"), _MARGIN)
    if parted["where"]:
        screen.below(ScreenCell(parted["where"]), _MARGIN)


def _summary(outcomes: Sequence[ReplayOutcome]) -> dict[str, Any]:
    return {
        "replayed": len(outcomes),
        "fitting": sum(each.failure is None for each in outcomes),
        "results": [each.facts() for each in outcomes],
    }


def _conclude(outcomes: Sequence[ReplayOutcome]) -> None:
    failed = sum(each.failure is not None for each in outcomes)
    counted = "1 history" if len(outcomes) == 1 else f"{len(outcomes)} histories"
    if failed:
        raise CommandError(
            "history_does_not_fit",
            f"{failed} of {counted} {'does' if failed == 1 else 'do'} not fit the code.",
            'Put the change behind workflow.patched("…"), or let runs of the old code end first.',
        )
    echo_err(f"The code fits {counted}.")
