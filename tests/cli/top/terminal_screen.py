"""A program on a terminal of a size, as a person uses it: what stands on the screen now, and keys."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.support.patience import PATIENCE_S

HOME = "\x1b[H"
CODES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\([A-Z0-9])")


class TerminalScreen:
    """The screen of a program that draws all of it anew, each time from the upper left corner."""

    def __init__(self, process: subprocess.Popen[bytes], primary: int, lines: int) -> None:
        self.process = process
        self._primary = primary
        self._lines = lines
        self._written = ""

    @property
    def everything(self) -> str:
        """All that was ever written, codes and all."""
        return self._written

    def text(self) -> str:
        """The last whole screen."""
        whole = [each for each in self._written.split(HOME) if each.count("\n") >= self._lines - 1]
        return CODES.sub("", whole[-1]).replace("\r", "") if whole else ""

    def press(self, keys: str) -> None:
        os.write(self._primary, keys.encode())

    def wait_for(self, has_come: Callable[[str], bool]) -> str:
        """The first screen for which it holds."""
        ends_at = time.monotonic() + PATIENCE_S
        while not has_come(self.text()):
            assert time.monotonic() < ends_at, f"on the screen:\n{self.text()}"
            assert self._read(), f"it ended:\n{self._written[-2000:]}"
        return self.text()

    def shows(self, *texts: str) -> str:
        return self.wait_for(lambda screen: all(each in screen for each in texts))

    def exit_code(self) -> int:
        ends_at = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < ends_at, f"it goes on:\n{self.text()}"
        return self.process.wait(PATIENCE_S)

    def _read(self) -> bool:
        """Read on; says whether the program still has the terminal."""
        if not select.select([self._primary], [], [], 1.0)[0]:
            return True
        try:
            chunk = os.read(self._primary, 65536)
        except OSError:
            return False
        self._written += chunk.decode(errors="replace")
        return bool(chunk)


@contextlib.contextmanager
def terminal_screen(
    arguments: Sequence[str], environment: Mapping[str, str], *, columns: int = 80, lines: int = 24
) -> Iterator[TerminalScreen]:
    """`penstock` with these arguments on a terminal; it is gone at the end."""
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    unset = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    inherited = {key: value for key, value in os.environ.items() if key not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        env=inherited | {"TERM": "xterm-256color"} | dict(environment),
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
    )
    os.close(secondary)
    try:
        yield TerminalScreen(process, primary, lines)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(primary)
