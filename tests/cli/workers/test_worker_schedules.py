"""A worker program applies the schedules that its app and its dispatch file declare."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.support.live import LiveServer
from tests.support.programs import environment_of, program, sender_to, told

APP = """
    from penstock import Penstock

    app = Penstock("nights")

    @app.task(schedule="0 3 * * *")
    def clean_up() -> str:
        return "clean"

    @app.task
    def tick() -> None:
        print("tick", flush=True)
"""
FILE = """
    [penstock.schedules.totals]
    every = "6h"
    workflow = "totals"

    [penstock.schedules.tick]
    every = "1s"
    activity = "tick"
"""


def test_schedules_are_created_when_a_worker_starts(tmp_path: Path, live: LiveServer) -> None:
    (tmp_path / "nights.py").write_text(textwrap.dedent(APP))
    (tmp_path / "penstock.toml").write_text(textwrap.dedent(FILE))
    sender = sender_to(live)
    try:
        with program(tmp_path, environment_of(live), "nights:app") as process:
            assert process.printed() == "tick", "the last schedule has fired"
            assert "Created the schedule nights.totals" in process.said
            assert "Created the schedule nights.clean_up" in process.said
            found = {each["schedule_id"]: each for each in told(sender, "schedules")["schedules"]}
    finally:
        sender.close_sync()
    assert found.keys() == {"nights.clean_up", "nights.totals", "nights.tick"}
    assert found["nights.totals"]["workflow_type"] == "totals"
