"""Other products to compare with: each in an environment of its own in the user's cache, none of it ours."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.workloads import Say

INSTALL_SECONDS_MAX = 300.0


class Absent(RuntimeError):
    """The peer is not here, and why."""


def environment(packages: Sequence[str], say: Say, *, install: bool) -> Path:
    """The environment that holds these packages; it is made first if it may be. Raises `Absent`."""
    home = _cache() / "-".join(packages).replace("==", "-")
    if not (home / "installed").exists():
        if not install:
            raise Absent("it is not installed, and a quick run does not install it")
        say(f"installing {' and '.join(packages)} into {home}, once")
        _install(home, packages)
    return home


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock-benchmarks"


def _install(home: Path, packages: Sequence[str]) -> None:
    try:
        venv.create(home, with_pip=True, clear=True)
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
