"""Reloads a configuration when its files change. A file that does not load never comes into force."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from penstock.dispatch.config import DispatchConfig
from penstock.dispatch.file.loader import FilePath, load_dispatch
from penstock.dispatch.inspection.effective import rows
from penstock.dispatch.problems import DispatchConfigError

logger = logging.getLogger("penstock.dispatch")
Listener = Callable[[DispatchConfig, DispatchConfig], object]
_CHANGES_SHOWN = 20


class WatchedDispatch:
    """The current configuration: one immutable object, replaced as a whole.

    Scheduled activities keep their options; later calls use the new ones. A file that does not load leaves the old
    configuration in force, and every problem is logged.
    """

    def __init__(
        self,
        paths: FilePath | Sequence[FilePath],
        root: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        overrides: Iterable[str] = (),
        strict: bool = False,
        current: DispatchConfig | None = None,
    ) -> None:
        """`current` is a configuration that was loaded before; changes since then are picked up by the first check."""
        self._paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        self._root = root
        self._environ = None if environ is None else dict(environ)
        self._overrides = tuple(overrides)
        self._strict = strict
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._seen = self._stamps() if current is None else []
        self._current = self._load() if current is None else current

    @property
    def current(self) -> DispatchConfig:
        """The configuration in force now."""
        return self._current

    def on_change(self, listener: Listener) -> None:
        """Call `listener(old, new)` after every exchange."""
        self._listeners.append(listener)

    def reload_if_changed(self) -> bool:
        """Read the files again if one of them looks different; True if a new configuration is in force."""
        with self._lock:
            stamps = self._stamps()
            if stamps == self._seen:
                return False
            return self._reload(stamps)

    def reload(self) -> bool:
        """Read the files again; True if a new configuration is in force."""
        with self._lock:
            return self._reload(self._stamps())

    async def watch(self, every_s: float = 1.0, *, at_hangup: bool | None = None) -> None:
        """Check the files periodically until cancelled; they are read in a thread.

        `at_hangup`: reload on SIGHUP; by default unless the process has a terminal.
        """
        asked = asyncio.Event()
        with _hangups(asked.set, not _is_at_a_terminal() if at_hangup is None else at_hangup):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asked.wait(), every_s)
                is_asked = asked.is_set()
                asked.clear()
                await asyncio.to_thread(self.reload if is_asked else self.reload_if_changed)

    def _reload(self, stamps: list[object]) -> bool:
        self._seen = stamps
        old = self._current
        try:
            new = self._load()
        except DispatchConfigError as error:
            logger.error(
                "dispatch configuration refused, %s stays in force: %s",
                old.fingerprint[:12],
                "; ".join(map(str, error.problems)),
            )
            return False
        except Exception:
            logger.exception("dispatch configuration cannot be read, %s stays in force", old.fingerprint[:12])
            return False
        if new.fingerprint == old.fingerprint:
            return False
        if old.origins and not new.origins:
            logger.error(
                "dispatch configuration is empty all at once, %s stays in force: start anew if that is meant",
                old.fingerprint[:12],
            )
            return False
        self._current = new
        logger.info(
            "dispatch configuration %s replaces %s: %s",
            new.fingerprint[:12],
            old.fingerprint[:12],
            _shown(changes(old, new)),
        )
        for warning in new.warnings:
            logger.warning("%s", warning)
        for listener in list(self._listeners):
            try:
                listener(old, new)
            except Exception:
                logger.exception("somebody who waits for dispatch configurations failed over a new one")
        return True

    def _load(self) -> DispatchConfig:
        return load_dispatch(
            self._paths,
            self._root,
            environ=self._environ,
            overrides=self._overrides,
            strict=self._strict,
        )

    def _stamps(self) -> list[object]:
        return [_stamp(path) for path in self._paths]


def changes(old: DispatchConfig, new: DispatchConfig) -> list[str]:
    """What differs, as `path: before -> after`."""
    before = {row.path: row.value for row in rows(old)}
    after = {row.path: row.value for row in rows(new)}
    return [
        f"{path}: {before.get(path, 'unset')} -> {after.get(path, 'unset')}"
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]


@contextlib.contextmanager
def _hangups(call: Callable[[], None], is_wanted: bool) -> Iterator[None]:
    """Call on SIGHUP; does nothing where the event loop does not support signal handlers."""
    loop = asyncio.get_running_loop()
    number = getattr(signal, "SIGHUP", None) if is_wanted else None
    if number is not None:
        try:
            loop.add_signal_handler(number, call)
        except (NotImplementedError, RuntimeError, ValueError):
            number = None
    try:
        yield
    finally:
        if number is not None:
            loop.remove_signal_handler(number)


def _is_at_a_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


def _shown(changed: list[str]) -> str:
    more = len(changed) - _CHANGES_SHOWN
    return "; ".join(changed[:_CHANGES_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _stamp(path: FilePath) -> object:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
