"""Taking a history out of the server at the command line."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from penstock.core.history.integrity import CANONICALIZATION, canonical
from tests.cli.recorded_server import RecordedServer, Run

PATH = "/workflows/order-1001/history/export"


def bundle(**changes: Any) -> dict[str, Any]:
    content = {
        "schema": "durable-workflow.v2.history-export",
        "history_complete": True,
        "workflow": {"instance_id": "order-1001", "memo": {"é": "\u2028"}},
        "history_events": [{"sequence": 1}, {"sequence": 2}],
    } | changes
    seal = {
        "canonicalization": CANONICALIZATION,
        "checksum_algorithm": "sha256",
        "checksum": hashlib.sha256(canonical(content)).hexdigest(),
    }
    return content | {"integrity": seal}


def test_a_bundle_is_written_to_a_file_after_its_checksum_was_verified(
    ask: Run, server: RecordedServer, tmp_path: Path
) -> None:
    file = tmp_path / "order.json"
    server.answer("GET", PATH, bundle())
    result = ask("workflow", "export", "order-1001", "-o", str(file))
    assert result.exit_code == 0, result.output
    assert json.loads(file.read_text()) == bundle()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert result.stdout == ""
    assert "2 events, checksum verified" in result.stderr
    assert bundle()["integrity"]["checksum"] in result.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["order.json"]


def test_without_a_file_the_bundle_is_the_output(ask: Run, server: RecordedServer) -> None:
    server.answer("GET", "/workflows/order-1001/runs/01RUN/history/export", bundle(history_complete=False))
    result = ask("workflow", "export", "order-1001", "--run", "01RUN")
    assert json.loads(result.stdout) == bundle(history_complete=False)
    assert "more will follow" in result.stderr


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (bundle() | {"history_events": []}, "checksum_mismatch"),
        ({"history_events": []}, "checksum_missing"),
        (bundle() | {"integrity": {"checksum_algorithm": "crc32"}}, "checksum_missing"),
    ],
)
def test_a_bundle_that_does_not_fit_its_seal_is_not_written(
    ask: Run, server: RecordedServer, tmp_path: Path, broken: dict[str, Any], reason: str
) -> None:
    server.answer("GET", PATH, broken)
    result = ask("workflow", "export", "order-1001", "-o", str(tmp_path / "order.json"))
    assert result.exit_code == 1
    assert reason in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_replaced_only_if_told_so(
    ask: Run, server: RecordedServer, tmp_path: Path
) -> None:
    file = tmp_path / "order.json"
    file.write_text("mine")
    server.answer("GET", PATH, bundle())
    assert ask("workflow", "export", "order-1001", "-o", str(file)).exit_code == 2
    assert (server.requests, file.read_text()) == ([], "mine")
    assert ask("workflow", "export", "order-1001", "-o", str(file), "--force").exit_code == 0
    assert json.loads(file.read_text()) == bundle()


def test_a_place_that_cannot_be_written_is_said(ask: Run, server: RecordedServer, tmp_path: Path) -> None:
    server.answer("GET", PATH, bundle())
    result = ask("workflow", "export", "order-1001", "-o", str(tmp_path / "no" / "order.json"))
    assert result.exit_code == 1
    assert "not_written" in result.stderr
