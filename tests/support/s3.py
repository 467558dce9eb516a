"""A real S3-compatible server on loopback: `rclone serve s3`, with signed requests and objects in a folder."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.live import free_port
from tests.support.patience import PATIENCE_S

KEY, SECRET = "penstock-test", "penstock-test-secret"
BUCKET = "payloads"
CREDENTIALS = {"STORAGE_TESTS_ACCESS_KEY_ID": KEY, "STORAGE_TESTS_SECRET_ACCESS_KEY": SECRET}
"""The environment of a server whose policies name the profile `tests`."""


@dataclass
class S3Server:
    """The server, its bucket, and where it keeps what it is given."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bucket(self) -> Path:
        return self.folder / BUCKET

    @property
    def config(self) -> dict[str, str]:
        """The configuration of a policy that uses it."""
        return {"bucket": BUCKET, "prefix": "big/ones", "endpoint": self.url, "auth_profile": "tests"}

    def start(self) -> None:
        self.bucket.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [
                Path(sys.executable).with_name("rclone"),
                *("serve", "s3", str(self.folder), "--addr", f"127.0.0.1:{self.port}"),
                *("--auth-key", f"{KEY},{SECRET}", "--config", str(self.folder / "rclone.conf")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ends_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends_at:
            try:
                urllib.request.urlopen(self.url, timeout=10)
            except urllib.error.HTTPError:
                return  # it answers, and refuses what is not signed
            except OSError:
                assert self.process.poll() is None, "the S3 server ended"
                time.sleep(0.05)
            else:
                return
        raise RuntimeError("the S3 server did not answer in time")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
            self.process = None


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server that is up inside the block and gone after it."""
    made = S3Server(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()
