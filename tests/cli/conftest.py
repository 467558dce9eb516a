"""The command line in this process, pointed at a loopback server with recorded answers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from penstock.cli.program import program
from penstock.cli.transport import connection
from tests.cli.recorded_server import TOKEN, RecordedServer, Run, recorded_server
from tests.support import unknown_fields
from tests.support.live import LiveServer, running
from tests.support.live import server as new_server


@pytest.fixture
def server() -> Iterator[RecordedServer]:
    with recorded_server() as recorded:
        yield recorded


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A real server for the programs of a module."""
    folder = tmp_path_factory.mktemp("server")
    with running(new_server(folder, f"sqlite:///{folder}/penstock.db")) as (made,):
        yield made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in this process, with nothing of the real environment in the way."""
    for name in ("DURABLE_WORKFLOW_SERVER_URL", "DURABLE_WORKFLOW_AUTH_TOKEN", "DURABLE_WORKFLOW_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*args: str, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(program, list(args), prog_name="penstock", env=env or {})

    return invoke


@pytest.fixture
def ask(run: Run, server: RecordedServer) -> Run:
    """Run a command line against the recorded server."""

    def invoke(*args: str, env: dict[str, str] | None = None) -> Result:
        connection = {"DURABLE_WORKFLOW_SERVER_URL": server.url, "DURABLE_WORKFLOW_AUTH_TOKEN": TOKEN}
        return run(*args, env=connection | (env or {}))

    return invoke


@pytest.fixture(autouse=True)
def no_unknown_fields() -> Iterator[None]:
    """Nothing that the command line sends in any test is unknown to the server."""
    with unknown_fields.none_are_sent(connection, "_read"):
        yield
