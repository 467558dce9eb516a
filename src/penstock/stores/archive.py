"""An archive in a directory: one gzip file per run, named by its checksum and written atomically."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from penstock.core.audit.bundle import Bundle
from penstock.core.model import RecordedEvent, Run
from penstock.core.timestamps import iso
from penstock.errors import Reason, Unavailable
from penstock.stores import private_files
from penstock.wire.operations.history_export import BundleWriter

AT_ONCE: Final = 4
"""Most exports that are written concurrently."""
_SUFFIX: Final = ".json.gz"
_OPEN: Final = ".part"


class DirectoryArchive:
    """Writes `namespace/day of close/run id.checksum.json.gz`; an incomplete file has another name."""

    def __init__(self, root: Path, key: str | None = None) -> None:
        self._root = root
        self._key = key
        self._room = asyncio.Semaphore(AT_ONCE)

    async def holds(self, run: Run) -> bool:
        return await asyncio.to_thread(_any_of, self._folder(run), run)

    async def put(self, bundle: Bundle, pages: AsyncIterator[Sequence[RecordedEvent]]) -> str:
        async with self._room:
            folder = self._folder(bundle.run)
            started = folder / f"{bundle.run.run_id}.{secrets.token_hex(4)}{_OPEN}"
            try:
                return await self._write(bundle, pages, started)
            except OSError as error:
                raise _cannot(error) from error
            finally:
                await asyncio.to_thread(_discard, started)

    async def _write(
        self, bundle: Bundle, pages: AsyncIterator[Sequence[RecordedEvent]], started: Path
    ) -> str:
        writer = BundleWriter(bundle, self._key)
        file = await asyncio.to_thread(_begin, started)
        try:
            await asyncio.to_thread(file.write, writer.head())
            async for page in pages:
                await asyncio.to_thread(_add, file, writer, page)
            await asyncio.to_thread(file.write, writer.tail())
        finally:
            await asyncio.to_thread(file.close)
        named = started.with_name(f"{bundle.run.run_id}.{writer.checksum}{_SUFFIX}")
        await asyncio.to_thread(_settle, started, named, self._root)
        return str(named.relative_to(self._root))

    def _folder(self, run: Run) -> Path:
        assert run.closed_at_ms is not None, "only a closed run is archived"
        return self._root / _safe(run.namespace) / iso(run.closed_at_ms)[:10]


def check(root: Path) -> None:
    """Create the directory; raises `OSError` if it is not writable."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = root / f".penstock-{os.getpid()}"
    probe.write_bytes(b"")
    probe.unlink()


def _safe(name: str) -> str:
    """The name of a namespace as a folder name that cannot refer to a parent directory."""
    return "%2E" + name[1:] if name.startswith(".") else name


def _begin(path: Path) -> gzip.GzipFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    private_files.create(path)
    return gzip.GzipFile(path, "wb", compresslevel=6, mtime=0)


def _add(file: gzip.GzipFile, writer: BundleWriter, page: Sequence[RecordedEvent]) -> None:
    file.write(writer.events(page))


def _settle(started: Path, named: Path, root: Path) -> None:
    """Sync the file, rename it, then sync the directories."""
    _sync(started)
    started.replace(named)
    for left in named.parent.glob(f"{named.name.partition('.')[0]}.*{_OPEN}"):
        _discard(left)
    for folder in (named.parent, named.parent.parent, root):
        _sync(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _any_of(folder: Path, run: Run) -> bool:
    return any(folder.glob(f"{run.run_id}.*{_SUFFIX}"))


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _cannot(error: OSError) -> Unavailable:
    return Unavailable(
        Reason.ARCHIVE_UNAVAILABLE,
        f"The archive cannot be written ({error.strerror or type(error).__name__}). Nothing was deleted: "
        "free space or restore the directory; the server then continues by itself.",
        outcome="none",
    )
