"""Other products to compare with: each in an environment of its own in the user's cache, none of it ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.workloads import Say

INSTALL_SECONDS_MAX = 300.0


class Absent(RuntimeError):
    """The peer is not here, and why."""


def environment(
    packages: Sequence[str], say: Say, *, install: bool, python: Path = Path(sys.executable)
) -> Path:
    """The environment that holds these packages; it is made first if it may be. Raises `Absent`."""
    home = _cache() / "-".join(packages).replace("==", "-")
    if not (home / "installed").exists():
        if not install:
            raise Absent("it is not installed, and a quick run does not install it")
        say(f"installing {' and '.join(packages)} into {home}, once")
        _install(home, packages, python)
    return home


def python_of(version: str) -> Path:
    """A Python of this version, from the path or from where version managers keep them. Raises `Absent`."""
    for candidate in _pythons(version):
        asked = subprocess.run((candidate, "--version"), capture_output=True, text=True, check=False)
        if asked.returncode == 0 and f" {version}." in asked.stdout:
            return candidate
    raise Absent(f"it needs Python {version}, which is not here")


def _pythons(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))
    yield from sorted(Path.home().glob(f".local/share/uv/python/cpython-{version}*/bin/python"))


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-benchmarks"


def _install(home: Path, packages: Sequence[str], python: Path) -> None:
    try:
        subprocess.run((python, "-m", "venv", "--clear", home), check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            (home / "bin" / "python", "-m", "pip", "install", "--quiet", *packages),
            check=True,
            timeout=INSTALL_SECONDS_MAX,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Absent(f"it could not be installed: {type(error).__name__}") from error
    (home / "installed").touch()
