"""External storage in a directory: one file per object, written beside its name, synced, then renamed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from typing import Final

from penstock.errors import Reason, Unavailable
from penstock.ports.objects import ObjectMissing
from penstock.stores import private_files

_OPEN: Final = ".part"


class DirectoryStorage:
    """Files of mode 0600 in folders of mode 0700. A reader finds a whole object or none."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, data: bytes) -> None:
        try:
            await asyncio.to_thread(_write, self._root, self._root / key, data)
        except OSError as error:
            raise _failed("written", error) from error

    async def get(self, key: str, bytes_max: int) -> bytes:
        try:
            return await asyncio.to_thread(_read, self._root / key, bytes_max + 1)
        except FileNotFoundError:
            raise ObjectMissing from None
        except OSError as error:
            raise _failed("read", error) from error

    async def delete(self, key: str) -> None:
        try:
            await asyncio.to_thread(_delete, self._root / key)
        except OSError as error:
            raise _failed("deleted", error) from error

    def uri(self, key: str) -> str:
        return (self._root / key).as_uri()


def _write(root: Path, path: Path, data: bytes) -> None:
    made = _make_folders(path.parent)
    started = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_OPEN}")
    try:
        handle = os.open(started, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_files.MODE)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        started.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            started.unlink()
        raise
    for folder in dict.fromkeys((path.parent, *(each.parent for each in made))):
        _sync(folder)


def _make_folders(folder: Path) -> list[Path]:
    """Create missing folders, closed to other users; returns those that were created."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    return missing


def _read(path: Path, bytes_max: int) -> bytes:
    with path.open("rb") as file:
        return file.read(bytes_max)


def _delete(path: Path) -> None:
    """Delete an object and what an interrupted write of it left."""
    for left in path.parent.glob(f"{path.name}.*{_OPEN}"):
        left.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failed(what: str, error: OSError) -> Unavailable:
    why = (error.strerror or str(error)).lower()
    return Unavailable(
        Reason.EXTERNAL_PAYLOAD_UNAVAILABLE,
        f"A file of the external storage cannot be {what}: {why}.",
        cause=why,
        retryable=True,
    )
