"""What becomes of a configuration on another engine."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.dispatch.files import Sources
from penstock.cli.output.exits import Exit, echo_err
from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.engines.temporal.lint import CodeFinding
    from penstock.engines.temporal.support import EngineSupport
    from penstock.sdk.app import Penstock
    from penstock.sdk.app_config.app import AppConfig
    from penstock.sdk.tasks.options import TaskOptions

ENGINES = ("temporal",)
ENGINE_OPTION = click.option(
    "--engine", type=click.Choice(ENGINES), help="Check for this engine instead of our own server."
)
_STYLES = {"enforced": "green", "approximated": "yellow", "refused": "red"}


def check_for_engine(session: CliSession, sources: Sources, app_path: str | None) -> None:
    """List every setting as enforced, approximated or refused, and workflow code that cannot run there."""
    from penstock.engines.temporal.support import SupportLevel, support_of

    config = sources.load_or_exit(session)
    app = None if app_path is None else _app(app_path)
    found = support_of(config, *(() if app is None else _of_app(app)))
    code = [] if app is None else _code_findings(app)
    refused = [each for each in found if each.level is SupportLevel.REFUSED]
    if session.json:
        body = {
            "engine": "temporal",
            "settings": [_as_json(each) for each in found],
            "code": [
                {"workflow": each.workflow, "place": each.place, "message": each.message} for each in code
            ],
        }
        show_json(json.dumps(body, ensure_ascii=False, default=str))
    else:
        _draw(found, code)
    approximated = sum(each.level is SupportLevel.APPROXIMATED for each in found)
    echo_err(
        f"On Temporal {len(found) - len(refused) - approximated} settings are enforced, {approximated} approximated"
        f" and {len(refused)} refused."
    )
    if refused or code:
        raise click.exceptions.Exit(int(Exit.REFUSED))


def _draw(found: list[EngineSupport], code: list[CodeFinding]) -> None:
    screen = Screen()
    screen.table(
        ["setting", "value", "on Temporal", "how"],
        [
            [
                name(each.path),
                plain(each.value),
                ScreenCell(str(each.level), _STYLES[each.level]),
                plain(each.how),
            ]
            for each in found
        ],
    )
    for each in code:
        screen.line(ScreenCell(str(each), "red"))


def _as_json(each: EngineSupport) -> dict[str, Any]:
    return {
        "path": each.path,
        "value": each.value,
        "level": str(each.level),
        "how": each.how,
        "source": each.source,
    }


def _of_app(app: Penstock) -> tuple[AppConfig | None, dict[str, TaskOptions], Collection[str]]:
    return app.config, {name: each.options for name, each in app.tasks.items()}, app.schedules


def _app(path: str) -> Penstock:
    from penstock.cli.user_code import load_module, load_one
    from penstock.sdk.app import Penstock

    found = load_one(path, lambda each: isinstance(each, Penstock), "an app (made by Penstock(…))")
    assert isinstance(found, Penstock)
    for module in found.include:
        load_module(module)
    return found


def _code_findings(app: Penstock) -> list[CodeFinding]:
    from penstock.engines.temporal.lint import look_at
    from penstock.sdk.workflows.definitions import WorkflowDefinition

    return [found for cls in app.workflows for found in look_at(WorkflowDefinition.of(cls))]
