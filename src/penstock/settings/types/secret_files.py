"""How a secret is read from its own file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from penstock.schema.problems import InvalidValue, quoted

_BYTES_MAX = 65_536
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_secret_file(path: Path) -> str:
    """The stripped content of the file, if only its owner can read it.

    The open file is checked, so that it cannot be replaced between check and read;
    it is opened without blocking, so that a named pipe is refused and not waited for.
    """
    shown = quoted(str(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError) as error:
        raise InvalidValue(f"cannot be read from {shown}: {_cause(error)}") from None
    try:
        content = _read_private(descriptor, shown)
    finally:
        os.close(descriptor)
    return _text(content, shown)


def is_open_to_others(status: os.stat_result) -> bool:
    """Whether the mode grants access to group or others; False where files have no such mode."""
    return os.name == "posix" and bool(status.st_mode & _OTHERS)


def _cause(error: OSError | ValueError) -> str:
    return error.strerror or "unreadable" if isinstance(error, OSError) else "not a path"


def _read_private(descriptor: int, shown: str) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidValue(f"must name a regular file, and {shown} is none")
    if is_open_to_others(status):
        raise InvalidValue(f"names {shown}, which others than its owner may use: chmod 600 it")
    if status.st_size > _BYTES_MAX:
        raise InvalidValue(f"names {shown}, which is larger than {_BYTES_MAX} bytes")
    return os.read(descriptor, _BYTES_MAX)


def _text(content: bytes, shown: str) -> str:
    try:
        text = content.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise InvalidValue(f"names {shown}, which is not UTF-8 text") from None
    if not text:
        raise InvalidValue(f"names {shown}, which is empty")
    return text
