"""Default log output for workers in programs that have not configured logging.

Python shows nothing below WARNING unless a program configures logging, so a plain worker script would be silent.
While such a worker runs, the logger `penstock` has a handler that writes INFO and above to stderr.

Invariant: no line appears twice, and a configuration of the program always wins. The handler is added only if neither
`penstock` nor the root logger has one. It checks again at each record: once the program has a handler that receives
the record too, the default handler removes itself and restores the level. It is also removed when the last worker of
the process ends.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

NAME: Final = "penstock"
LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def default_logging(*, wanted: bool = True) -> Iterator[None]:
    """Log to stderr while the block runs, if `wanted` and unless the program has configured logging."""
    if not wanted:
        yield
        return
    _DEFAULT.join()
    try:
        yield
    finally:
        _DEFAULT.leave()


class _DefaultHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current `sys.stderr`, and removes itself once the program has a handler of its own."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(LINE))

    def emit(self, record: logging.LogRecord) -> None:
        if _is_handled(record.name, besides=self):
            _DEFAULT.step_aside()
            return
        self.stream = sys.stderr
        super().emit(record)


class _SharedHandler:
    """The handler, shared by all workers of the process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._workers = 0
        self._handler: _DefaultHandler | None = None
        self._set_level = False

    def join(self) -> None:
        with self._lock:
            self._workers += 1
            if self._handler is None and not _is_handled(NAME):
                self._install()

    def leave(self) -> None:
        with self._lock:
            self._workers -= 1
            if not self._workers:
                self.step_aside()

    def step_aside(self) -> None:
        with self._lock:
            handler, self._handler = self._handler, None
            logger = logging.getLogger(NAME)
            if handler is not None:
                logger.removeHandler(handler)
            if self._set_level:
                self._set_level = False
                logger.setLevel(logging.NOTSET)

    def _install(self) -> None:
        logger = logging.getLogger(NAME)
        self._handler = _DefaultHandler()
        logger.addHandler(self._handler)
        if logger.level == logging.NOTSET:  # keep a level that the program has set
            self._set_level = True
            logger.setLevel(logging.INFO)


_DEFAULT: Final = _SharedHandler()


def _is_handled(name: str, besides: logging.Handler | None = None) -> bool:
    """Whether a handler of the program receives the records of a logger."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(each is not besides and not isinstance(each, logging.NullHandler) for each in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
