"""A worker program applies the schedules that its app and its dispatch file declare."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

from tests.support.live import LiveServer
from tests.support.patience import PATIENCE_S
from tests.support.programs import environment_of, program, sender_to, told

APP = """
    from penstock import Penstock

    app = Penstock("nights")

    @app.task(schedule="0 3 * * *")
    def clean_up() -> str:
        return "clean"
"""
FILE = """
    [penstock.schedules.totals]
    every = "6h"
    workflow = "totals"
"""


def test_schedules_are_created_when_a_worker_starts(tmp_path: Path, live: LiveServer) -> None:
    (tmp_path / "nights.py").write_text(textwrap.dedent(APP))
    (tmp_path / "penstock.toml").write_text(textwrap.dedent(FILE))
    sender = sender_to(live)
    try:
        with program(tmp_path, environment_of(live), "nights:app") as process:
            ends_at = time.monotonic() + PATIENCE_S
            while "Created the schedule nights.totals" not in process.said and time.monotonic() < ends_at:
                time.sleep(0.05)
            assert "Created the schedule nights.clean_up" in process.said
            found = {each["schedule_id"]: each for each in told(sender, "schedules")["schedules"]}
    finally:
        sender.close_sync()
    assert found.keys() == {"nights.clean_up", "nights.totals"}
    assert found["nights.totals"]["workflow_type"] == "totals"
