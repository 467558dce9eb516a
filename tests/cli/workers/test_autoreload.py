"""A program that is started anew whenever its code changes, and ends when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.workers.autoreload import ReloadSupervisor

SLEEPER = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("ready", flush=True)
signal.pause()
"""


class EventLine(ReloadSupervisor):
    """Is told to end while it sleeps, and wakes when its process has ended."""

    def _start(self) -> None:
        self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE)

    def sleep(self, _seconds: float) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        self._child.stdout.readline()
        os.kill(os.getpid(), signal.SIGTERM)
        self._child.wait()


def test_a_supervisor_that_is_told_to_end_ends_as_its_process_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = EventLine([sys.executable, "-c", SLEEPER], tmp_path)
    monkeypatch.setattr("penstock.cli.workers.autoreload.time.sleep", told.sleep)
    assert told.run() == 3
    assert "starts anew" not in capfd.readouterr().err
