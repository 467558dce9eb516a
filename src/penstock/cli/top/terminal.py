"""Keys of a terminal, one at a time and without echo; the terminal is as before when the block ends.

A key is one character, or an escape sequence that arrives in one piece (arrows, Home, End). A lone Escape is a key too:
sequences are told from it by what came in the same read, so no key waits for a timeout.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import termios
import tty
from collections.abc import Iterator

from penstock.cli.top.state import TopKey

_KEYS = {
    "\x1b[A": TopKey.UP, "\x1bOA": TopKey.UP, "k": TopKey.UP,
    "\x1b[B": TopKey.DOWN, "\x1bOB": TopKey.DOWN, "j": TopKey.DOWN,
    "\x1b[H": TopKey.FIRST, "\x1bOH": TopKey.FIRST, "\x1b[1~": TopKey.FIRST, "g": TopKey.FIRST,
    "\x1b[F": TopKey.LAST, "\x1bOF": TopKey.LAST, "\x1b[4~": TopKey.LAST, "G": TopKey.LAST,
    "\r": TopKey.OPEN, "\n": TopKey.OPEN, "l": TopKey.OPEN, "\x1b[C": TopKey.OPEN, "\x1bOC": TopKey.OPEN,
    "\x1b": TopKey.BACK, "h": TopKey.BACK, "\x7f": TopKey.BACK, "\x1b[D": TopKey.BACK, "\x1bOD": TopKey.BACK,
    "s": TopKey.SORT, "p": TopKey.PAUSE, " ": TopKey.PAUSE,
    "?": TopKey.HELP, "q": TopKey.QUIT, "\x03": TopKey.QUIT, "\x04": TopKey.QUIT,
}  # fmt: skip
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[A-Za-z~]|O[A-Za-z])?|.", re.DOTALL)


@contextlib.contextmanager
def raw_input() -> Iterator[int | None]:
    """The descriptor from which keys can be read; None if nobody types there."""
    if not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def read_keys(descriptor: int) -> list[TopKey]:
    """The keys that were pressed; the end of the input quits, unknown keys do nothing."""
    typed = os.read(descriptor, 1024).decode(errors="replace")
    if not typed:
        return [TopKey.QUIT]
    return [_KEYS[each] for each in _SEQUENCE.findall(typed) if each in _KEYS]
