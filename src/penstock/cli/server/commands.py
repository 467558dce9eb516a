"""Commands for the server: start it, show its state and health."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from penstock.cli.grammar import CommandReach, noun
from penstock.cli.output.exits import CommandError, echo_err
from penstock.cli.output.screen import Screen, plain, status
from penstock.cli.server.settings import explained, listen_flags, load_settings
from penstock.cli.transport.session import CliSession, show_json


@noun("server", example="penstock server start --host 127.0.0.1 --port 8080")
def server() -> None:
    """Start a server, and show the state of a running one."""


@server.verb(
    "start", example="penstock server start --port 8080 --config penstock.toml", reach=CommandReach.HERE
)
@click.option("--host", metavar="ADDRESS", help="Address to listen on [env: DW_HOST].")
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Port to listen on [env: DW_PORT].")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="TOML file with settings.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Server processes behind the one port; more than 1 needs PostgreSQL [env: DW_SERVER_PROCESSES].",
)
@click.pass_obj
def start_server(
    session: CliSession, host: str | None, port: int | None, config: Path | None, processes: int | None
) -> None:
    """Run a server in the foreground until SIGTERM or Ctrl-C."""
    settings = load_settings(config, listen_flags(host, port, processes))
    from penstock import assembly

    if session.json:
        listen = settings.listen
        show_json(json.dumps({"host": listen.host, "port": listen.port, "server_id": settings.server_id}))
    with explained():
        if settings.listen.processes == 1:
            assembly.serve(settings)
            return
        from penstock.cli.server.processes import fork_servers

        assembly.configure_logs(settings.logs)
        child = fork_servers(settings, assembly.bind(settings))
        assembly.serve(child.settings, bound=child.bound, metrics_socket=child.metrics_socket)


@server.verb("info", example="penstock server info")
@click.pass_obj
def show_info(session: CliSession) -> None:
    """Show the server's version, protocols and limits."""
    session.show(session.connect().get("cluster", "info"), _draw_info)


@server.verb("health", example="penstock server health")
@click.pass_obj
def show_health(session: CliSession) -> None:
    """Check whether the server and its database are healthy; exit code 1 if not."""
    connection = session.connect()
    answer = connection.get("health", accept=(503,))
    session.show(answer, _draw_health)
    state = str(answer.body.get("status"))
    if state != "serving":
        raise CommandError(f"server_{state}", f"{connection.target} is {state}.", "Read the server's log.")
    if not session.json:
        echo_err(f"{connection.target} is serving.")


def _draw_info(screen: Screen, body: dict[str, Any]) -> None:
    protocol = body.get("worker_protocol") or {}
    screen.fields(
        body,
        "server=server_id:name, version, default namespace, control plane=control_plane.version, "
        "worker protocol=worker_protocol.version",
    )
    fleet = body.get("worker_fleet")
    if isinstance(fleet, dict):
        screen.heading("Workers")
        screen.fields(fleet, "active=active_workers, task queues=queues, builds=build_ids")
    _draw_switches(screen, "Capabilities", protocol.get("server_capabilities"))
    _draw_switches(screen, "Limits", body.get("limits"))


def _draw_switches(screen: Screen, title: str, values: object) -> None:
    if not isinstance(values, dict):
        return
    simple = {key: value for key, value in values.items() if isinstance(value, bool | int | str)}
    if simple:
        screen.heading(title)
        screen.facts([(str(key).replace("_", " "), plain(value)) for key, value in sorted(simple.items())])


def _draw_health(screen: Screen, body: dict[str, Any]) -> None:
    checks = body.get("checks") or {}
    screen.facts(
        [
            ("Status", status(body.get("status"))),
            *[(str(check).capitalize(), status(_state(found))) for check, found in checks.items()],
            ("At", screen.when_exactly(body.get("timestamp"))),
        ]
    )


def _state(found: object) -> object:
    return found.get("status") if isinstance(found, dict) else found
