"""Restarts a program whenever its code changes, for development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from penstock.cli.output.exits import echo_err

LOOK_SECONDS = 0.3
ENDINGS = (".py", ".toml")
ENDS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_NOT_CODE = {"node_modules", "__pycache__", "site-packages", "build", "dist"}
FILES_MAX = 20_000

Stamps = dict[str, tuple[int, int]]


def run_reloading(root: Path) -> int:
    """Run this command without `--reload` until it is stopped; returns its exit code."""
    command = [each for each in sys.orig_argv if each != "--reload"]
    return ReloadSupervisor(command, root).run()


class ReloadSupervisor:
    """Keeps one process running. Signals are handed on to it, and end the supervisor with it."""

    def __init__(self, command: Sequence[str], root: Path) -> None:
        self._command, self._root = command, root
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        before = {each: signal.signal(each, self._on_signal) for each in ENDS}
        try:
            seen = stamps(self._root)
            self._start()
            while self._wait_for_check():
                now = stamps(self._root)
                if now != seen:
                    self._changed(seen, now)
                    seen = now
                elif self._child is not None and self._child.poll() is not None:
                    self._ended(self._child.returncode)
            code = 0 if self._child is None else self._child.wait()
            return code if code >= 0 else 128 - code
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _wait_for_check(self) -> bool:
        """Wait for the next check; False if it is to stop."""
        if not self._stopping:
            time.sleep(LOOK_SECONDS)
        return not self._stopping

    def _start(self) -> None:
        """Start the process in its own session: Ctrl-C reaches it once, through the supervisor."""
        self._child = subprocess.Popen(self._command, start_new_session=True)

    def _changed(self, before: Stamps, now: Stamps) -> None:
        """Stop the process gracefully, and start another."""
        changed = sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        echo_err(f"Changed: {os.path.relpath(changed[0], self._root)}{more}. Restarting.")
        if self._child is not None and self._child.poll() is None:
            self._child.terminate()
            self._child.wait()
        if not self._stopping:
            self._start()

    def _ended(self, code: int) -> None:
        echo_err(f"It has ended with exit code {code}. It restarts when a file changes.")
        self._child = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stopping = True
        if self._child is not None and self._child.poll() is None:
            # workers do not shut down gracefully on the SIGHUP of a closed terminal
            self._child.send_signal(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)


def stamps(root: Path) -> Stamps:
    """Code and configuration files below a directory, with their modification stamps."""
    found: Stamps = {}
    for path in _files(root):
        try:
            status = path.stat()
        except OSError:
            continue
        found[str(path)] = (status.st_mtime_ns, status.st_size)
        if len(found) >= FILES_MAX:
            break
    return found


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [each for each in folders if not each.startswith(".") and each not in _NOT_CODE]
        yield from (Path(folder, name) for name in names if name.endswith(ENDINGS))
