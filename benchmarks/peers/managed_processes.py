"""Processes that end with a block, and also when we are killed; some of them answer questions."""

from __future__ import annotations

import contextlib
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.support.process_guard import ProcessGuard

ANSWER_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 10.0


class PeerFailed(RuntimeError):
    """A peer or its driver ended or fell silent; what it had to say stands on stderr or in its log."""


def started(
    stack: contextlib.ExitStack, home: Path, command: Sequence[str | Path], **options: Any
) -> subprocess.Popen[bytes]:
    """A process that is gone when the stack is unwound; `home` is what it leaves behind."""
    given: dict[str, Any] = {"cwd": home} | options
    process = subprocess.Popen(command, **given)
    stack.callback(ended, process)
    guardian = ProcessGuard(process.pid, home)
    stack.callback(guardian.release)
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a process, by force if it does not end by itself."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS_MAX)


class Driver:
    """A process that says when it is ready, and then answers each line with a line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.finish()

    def ask(self, verb: str, *values: object) -> dict[str, Any]:
        self.begin(verb, *values)
        return self.finish()

    def begin(self, verb: str, *values: object) -> None:
        """Ask, and do something else before the answer is read."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(msgspec.json.encode((verb, *values)) + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerFailed("its driver ended") from error

    def finish(self) -> dict[str, Any]:
        out = self.process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], ANSWER_SECONDS_MAX)
        line = out.readline() if ready else b""
        if not line:
            raise PeerFailed("its driver ended or fell silent")
        return msgspec.json.decode(line, type=dict[str, Any])
