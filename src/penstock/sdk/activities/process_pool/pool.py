"""A pool of processes for activities: one per slot, started on demand."""

from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import pickle
import sys
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from multiprocessing import util as _before_ours  # noqa: F401 - what it does at exit must be registered first
from typing import Any, Literal

from penstock.sdk.activities.definition import MARK, ActivityDefinition
from penstock.sdk.activities.process_pool.process_child import ProcessPreload, import_target
from penstock.sdk.activities.process_pool.process_slot import REAP_DELAY_S, ProcessSlot
from penstock.sdk.converters import DataConverter

StartMethod = Literal["spawn", "forkserver"]
"""Plain `fork` is not offered: it copies locks that threads of the worker hold."""

log = logging.getLogger(__name__)
_LIVE: weakref.WeakSet[ProcessSlot] = weakref.WeakSet()


class ProcessPool:
    def __init__(
        self,
        max_size: int,
        converter: DataConverter,
        *,
        method: StartMethod = "spawn",
        recycle_after: int | None = None,
        recycle_over_bytes: int | None = None,
    ) -> None:
        if recycle_after is not None and recycle_after < 1:
            raise ValueError(
                f"A process serves at least 1 activity before it is replaced, not {recycle_after}"
            )
        if method not in ("spawn", "forkserver"):
            raise ValueError(f'Processes are started by "spawn" or "forkserver", not {method!r}')
        self._context = multiprocessing.get_context(method)
        self._converter, self._recycle_after = converter, recycle_after
        self._recycle_over_bytes = recycle_over_bytes
        self._max_size, self._free_slots = max_size, asyncio.Semaphore(max_size)
        self._free: list[ProcessSlot] = []
        self._all: list[ProcessSlot] = []

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[ProcessSlot]:
        """Borrow a process."""
        async with self._free_slots:
            slot = self._free.pop() if self._free else self._new()
            try:
                yield slot
            finally:
                self._free.append(slot)

    def prepare(self, targets: Iterable[str]) -> None:
        """Start all processes now and import the modules of these targets. A process that ends is replaced at once."""
        modules = dict.fromkeys(target.partition(":")[0] for target in targets)
        while len(self._all) < self._max_size:
            self._free.append(self._new())
        for each in self._all:
            each.prepare(ProcessPreload(tuple(modules)))

    def resize(self, max_size: int) -> None:
        """Set the maximum number of processes. Idle processes stay."""
        for _ in range(max_size - self._max_size):
            self._free_slots.release()
        self._max_size = max(self._max_size, max_size)

    def kill(self) -> None:
        for each in self._all:
            each.kill()

    async def close(self) -> None:
        """Stop all processes and wait until they have exited."""
        for each in self._all:
            each.close()
        for each in self._all:
            await asyncio.to_thread(each.join)
            _LIVE.discard(each)
        self._all, self._free = [], []

    def _new(self) -> ProcessSlot:
        slot = ProcessSlot(
            self._context,
            self._converter,
            recycle_after=self._recycle_after,
            recycle_over_bytes=self._recycle_over_bytes,
            name=f"activity-process-{len(self._all) + 1}",
        )
        self._all.append(slot)
        _LIVE.add(slot)
        return slot


def check_converter(converter: DataConverter) -> None:
    """Raise `TypeError` if the converter cannot be pickled."""
    try:
        pickle.dumps(converter)
    except Exception as error:
        raise TypeError(
            f"The data converter cannot be handed to processes of activities: {error}. Define its codecs at the top of "
            "a module, and let them hold nothing that cannot be pickled"
        ) from error


def target_of(definition: ActivityDefinition) -> str:
    """Return `module:qualname` of an activity that runs in processes. Raises a `TypeError` that names the fix."""
    fn: Any = definition.fn
    module, path = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if module is None or path is None or getattr(fn, "__self__", None) is not None:
        raise TypeError(_unreachable(definition, "it belongs to an object"))
    if "<locals>" in path:
        raise TypeError(_unreachable(definition, f"it is defined inside of a function ({path})"))
    if module == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        raise TypeError(_unreachable(definition, "it is defined in an interactive session"))
    target = f"{module}:{path}"
    try:
        found = import_target(target)
    except (ImportError, AttributeError) as error:
        raise TypeError(_unreachable(definition, f"{target} cannot be imported ({error})")) from error
    known = ActivityDefinition.of(found)
    if known is None or replace(known, kind=definition.kind) != definition:
        raise TypeError(_unreachable(definition, f"{target} is something else"))
    return target


def all_in_processes(definitions: Iterable[ActivityDefinition]) -> list[ActivityDefinition]:
    """Return the definitions changed to run in processes, except those that opt out or cannot be imported by name."""
    return [_in_process(each) for each in definitions]


def in_processes(
    definitions: Mapping[str | None, ActivityDefinition],
) -> dict[str | None, ActivityDefinition]:
    """Return the sync definitions that are to run in processes, by name."""
    return {name: _in_process(each) for name, each in definitions.items() if each.kind == "thread"}


def processes_of(executor: ProcessPoolExecutor) -> int | None:
    """Return the number of processes that an executor would have; None if it does not say."""
    count = getattr(executor, "_max_workers", None)
    return count if isinstance(count, int) else None


def _in_process(definition: ActivityDefinition) -> ActivityDefinition:
    mark = getattr(definition.fn, MARK, None)
    if definition.kind == "process" or getattr(mark, "runs_in", None) == "thread":
        return definition
    moved = replace(definition, kind="process")
    try:
        target_of(moved)
    except TypeError as error:
        log.warning("%s, so it runs in the worker itself", error)
        return definition
    return moved


def _unreachable(definition: ActivityDefinition, why: str) -> str:
    return (
        f"{definition.label} runs in processes, which import it by its name, and {why}. "
        'Make it a function at the top of a module, or run it in a thread: @activity.defn(runs_in="thread")'
    )


def _at_exit() -> None:
    """Do not let processes block the exit of a program that did not close its worker."""
    slots = list(_LIVE)
    for each in slots:
        each.close()
        each.kill()
    for each in slots:
        each.join(REAP_DELAY_S)


atexit.register(_at_exit)
