"""Under which account a test server runs, and what that account can reach.

PostgreSQL refuses to run as root. When the tests do, servers run as an unprivileged account that already
exists: no account is made and no permission outside our own temporary folder is changed.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.binaries import Binaries
from tests.support.patience import PATIENCE_S

UNPRIVILEGED = ("nobody", "postgres", "daemon")


@dataclass(frozen=True, slots=True)
class Account:
    """Who runs a server, with its home in `home`. Without a `uid` it is the caller."""

    home: Path
    uid: int | None = None
    gid: int | None = None

    @classmethod
    def for_servers(cls, home: Path) -> Account:
        """The caller, or an unprivileged account if the caller is root; `home` is opened to it."""
        if os.geteuid() != 0:
            return cls(home)
        entry = _unprivileged_entry()
        home.chmod(0o755)  # our own temporary folder, so that the account can pass through it
        return cls(home, entry.pw_uid, entry.pw_gid)

    def own(self, folder: Path) -> Path:
        """Make `folder` and hand it to this account alone."""
        folder.mkdir(mode=0o700)
        if self.uid is not None and self.gid is not None:
            os.chown(folder, self.uid, self.gid)
        return folder

    def run(self, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        """Run a short command to its end; the caller looks at the return code."""
        return subprocess.run(
            command,
            env=self._environment(),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

    def spawn(self, command: Sequence[str | Path], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a server in its own session, so that Ctrl-C reaches the tests and not the server."""
        return subprocess.Popen(
            command,
            env=self._environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

    def reachable(self, binaries: Binaries) -> Binaries:
        """The same binaries where this account can run them: in place, or copied below `home`."""
        if self._can_run(binaries.server):
            return binaries
        copies = self.home / "binaries"
        for part in binaries.parts:
            shutil.copytree(part, copies / part.relative_to(binaries.anchor), symlinks=True)
        server = copies / binaries.server.relative_to(binaries.anchor)
        copied = dataclasses.replace(
            binaries,
            server=server,
            source=f"{binaries.source}, copied",
            anchor=copies,
            parts=tuple(copies / part.relative_to(binaries.anchor) for part in binaries.parts),
        )
        if not self._can_run(server):
            raise PermissionError(f"{binaries} cannot be run by uid {self.uid}, not even from a copy")
        return copied

    def _can_run(self, program: Path) -> bool:
        """Ask the kernel and the loader rather than guess from permission bits."""
        try:
            return self.run([program, "--version"]).returncode == 0
        except PermissionError:
            return False

    def _environment(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.home), "LC_ALL": "C", "TZ": "UTC"}


def _unprivileged_entry() -> pwd.struct_passwd:
    for name in UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError(f"running as root, and none of the accounts {', '.join(UNPRIVILEGED)} exists")
