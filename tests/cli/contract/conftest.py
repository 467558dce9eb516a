"""`dw` in this process, with environments of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.contract.program import dw
from tests.cli.recorded_server import RecordedServer, Run


@pytest.fixture
def contract(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: RecordedServer) -> Run:
    """Run `dw` against the recorded server."""
    for name in ("AUTH_TOKEN", "NAMESPACE", "TLS_VERIFY"):
        monkeypatch.delenv(f"DURABLE_WORKFLOW_{name}", raising=False)
    monkeypatch.delenv("DW_ENV", raising=False)
    monkeypatch.setenv("DURABLE_WORKFLOW_SERVER_URL", server.url)
    monkeypatch.setenv("DW_CONFIG_HOME", str(tmp_path / "dw"))

    def invoke(*args: str, env: dict[str, str | None] | None = None, stdin: str = "") -> Result:
        return CliRunner().invoke(dw, list(args), prog_name="dw", env=env or {}, input=stdin)

    return invoke
