"""Commands for server and dispatch configurations: check them, show the effective values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.dispatch.files import (
    ROOT_OPTION,
    SET_OPTION,
    STRICT_OPTION,
    Sources,
    found_files,
    print_warnings,
    problem_body,
)
from penstock.cli.grammar import CommandReach, noun
from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, ScreenCell, name, plain
from penstock.cli.server.engine_check import ENGINE_OPTION, check_for_engine
from penstock.cli.server.settings import load_settings
from penstock.cli.transport.session import CliSession, show_json

if TYPE_CHECKING:
    from penstock.settings import QueueLimit, Settings

_CONFIG = click.option(
    "--config",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="TOML file of a server, or of dispatch: one with the table [penstock], [temporal] or [tool.penstock].",
)
_NAMED = click.argument("named", type=click.Path(path_type=Path), nargs=-1, metavar="[FILE]...")


@noun("config", example="penstock config check penstock.toml")
def config() -> None:
    """Check and show the configuration of a server, or of dispatch."""


@config.verb("check", example="penstock config check dispatch.toml --strict", reach=CommandReach.HERE)
@_NAMED
@_CONFIG
@ROOT_OPTION
@SET_OPTION
@STRICT_OPTION
@ENGINE_OPTION
@click.option(
    "--app", metavar="MODULE:APP", help="With --engine: check the settings and workflows of this app too."
)
@click.pass_obj
def check(
    session: CliSession,
    /,
    named: tuple[Path, ...],
    files: tuple[Path, ...],
    root: str | None,
    overrides: tuple[str, ...],
    strict: bool,
    engine: str | None,
    app: str | None,
) -> None:
    """Check a configuration and list every problem; exit code 78 for a server's, 2 for dispatch, 1 with --engine."""
    given = (*named, *files)
    if engine is not None or app is not None:
        if engine is None:
            raise click.UsageError("--app is for --engine.")
        check_for_engine(session, Sources(given, root, overrides, strict), app)
        return
    of_server, of_dispatch = _sorted_files(given, root, overrides, strict)
    found = [] if given or of_dispatch is not None else found_files(root)
    answer: dict[str, Any] = {"valid": True, "warnings": []}
    if of_dispatch is not None or found:
        dispatch = Sources(of_dispatch or found, root, overrides, strict).load_or_exit(session)
        print_warnings(dispatch)
        answer["warnings"] = [problem_body(warning) for warning in dispatch.warnings]
        answer["fingerprint"] = dispatch.fingerprint
        answer["unused"] = list(dispatch.unused)
        which = f" of {found[0]}" if found else ""
        echo_err(f"The dispatch configuration{which} is valid, with fingerprint {dispatch.fingerprint[:12]}.")
    if of_server is not None or of_dispatch is None:
        settings = load_settings(of_server)
        answer["warnings"] += list(settings.warnings)
        echo_err("The configuration is valid.")
    if session.json:
        show_json(json.dumps(answer, ensure_ascii=False))


@config.verb("show", example="penstock config show --effective dispatch.toml", reach=CommandReach.HERE)
@_NAMED
@_CONFIG
@ROOT_OPTION
@SET_OPTION
@click.option("--effective", is_flag=True, help="Of a dispatch configuration, show the built-in values too.")
@click.option(
    "--queue",
    metavar="[NAMESPACE:]NAME",
    help="Show only the limits declared for this task queue, and their sources.",
)
@click.pass_obj
def show(
    session: CliSession,
    /,
    named: tuple[Path, ...],
    files: tuple[Path, ...],
    root: str | None,
    overrides: tuple[str, ...],
    effective: bool,
    queue: str | None,
) -> None:
    """Show every effective setting and its source; secrets are masked."""
    from penstock.settings import describe

    given = (*named, *files)
    of_server, of_dispatch = _sorted_files(given, root, overrides)
    if effective and not given and of_dispatch is None:
        of_dispatch = found_files(root) or None
    if of_dispatch is not None:
        if of_server is not None or queue is not None:
            raise click.UsageError(
                "Show a dispatch configuration by itself: without --queue and other files."
            )
        _show_dispatch(session, of_dispatch, root, overrides, effective)
        return
    settings = load_settings(of_server)
    if queue is not None:
        _show_queue(session, settings, queue)
        return
    _show_rows(session, [(row.name, row.value, row.source) for row in describe(settings)])


@config.verb("schema", example="penstock config schema > dispatch.schema.json", reach=CommandReach.HERE)
def schema() -> None:
    """Print the JSON Schema of dispatch configurations, for editors."""
    from penstock.dispatch.file.shape import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))


def _sorted_files(
    files: Sequence[Path], root: str | None, overrides: Sequence[str], strict: bool = False
) -> tuple[Path | None, list[Path] | None]:
    """The file of a server, if one is given, and the files of dispatch, if any are meant."""
    from penstock.dispatch.file.sources import has_root

    of_dispatch = [path for path in files if root is not None or path.is_fifo() or has_root(path)]
    is_meant = bool(of_dispatch or overrides or strict)
    if is_meant:
        of_dispatch = [path for path in files if path in of_dispatch or not path.exists()]
    of_server = [path for path in files if path not in of_dispatch]
    if len(of_server) > 1:
        raise click.UsageError(
            f"{of_server[1]} has none of the tables [penstock], [temporal] and [tool.penstock],"
            " and a server has one file only."
        )
    return (of_server[0] if of_server else None), (of_dispatch if is_meant else None)


def _show_dispatch(
    session: CliSession, files: list[Path], root: str | None, overrides: Sequence[str], effective: bool
) -> None:
    from penstock.dispatch.inspection.effective import BUILT_IN_SOURCE, rows

    found = rows(Sources(files, root, overrides).load_or_exit(session))
    found = [row for row in found if effective or row.source != BUILT_IN_SOURCE]
    _show_rows(session, [(row.path, row.value, row.source) for row in found])


def _show_rows(session: CliSession, rows: Sequence[tuple[str, Any, str]]) -> None:
    """Show settings with their values and sources."""
    found = [{"name": path, "value": value, "source": source} for path, value, source in rows]
    session.show_data(found, lambda screen: screen.rows(found, "setting=name:name, value, from=source"))


def _show_queue(session: CliSession, settings: Settings, given: str) -> None:
    from penstock.settings import limits_of_queue

    namespace, colon, queue = given.partition(":")
    if not colon:
        namespace, queue = settings.default_namespace, given
    limits = limits_of_queue(settings, namespace.lower(), queue)
    if session.json:
        show_json(json.dumps([_as_json(limit) for limit in limits]))
        return
    if not limits:
        echo_err("No limit is declared for this task queue.")
        return
    Screen().table(["tasks", "scope", "limit", "value", "from"], [_drawn(limit) for limit in limits])
    echo_err("Limits that operators set on the running server take precedence.")


def _as_json(limit: QueueLimit) -> dict[str, Any]:
    entry = limit.entry
    return {
        "task_queue_type": limit.kind,
        "scope": limit.scope,
        "limit": limit.limit,
        "value": limit.value,
        "window": limit.window,
        "name": entry and entry.path,
        "source": entry and entry.source,
    }


def _drawn(limit: QueueLimit) -> list[ScreenCell]:
    value = f"{limit.value} (closed)" if limit.value == 0 else str(limit.value)
    if limit.window == "sliding":
        value = f"{value} (sliding)"
    source = f"{limit.entry.path} ({limit.entry.source})" if limit.entry else ""
    return [plain(limit.kind), name(limit.scope), plain(limit.limit), plain(value), plain(source)]
