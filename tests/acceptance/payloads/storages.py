"""Where the servers of these tests keep payloads, and what a test finds there."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.cluster import Cluster, Json
from tests.support.s3 import CREDENTIALS, S3Server

FOLDER = Path(tempfile.gettempdir()) / f"penstock-payloads-{os.getpid()}"
S3 = S3Server(FOLDER / "s3")
SETTINGS = {
    "DW_EXTERNAL_STORAGE_DIR": str(FOLDER / "files"),
    "DW_EXTERNAL_STORAGE_ENDPOINTS": S3.url,
} | CREDENTIALS
THRESHOLD = 4096


@dataclass(frozen=True)
class Storage:
    """The storage of one namespace."""

    driver: str
    namespace: str

    @property
    def policy(self) -> Json:
        config: dict[str, Any] = S3.config if self.driver == "s3" else {"uri": "shop"}
        return {"driver": self.driver, "threshold_bytes": THRESHOLD, "config": config}

    @property
    def objects(self) -> list[Path]:
        """The files in which the objects of the namespace are."""
        root = S3.bucket / "big/ones" if self.driver == "s3" else FOLDER / "files/shop"
        return sorted(each for each in (root / self.namespace).rglob("ep_*") if each.is_file())

    async def turn_on(self, scene: Cluster) -> None:
        path = f"/api/namespaces/{self.namespace}/external-storage"
        (await scene.ask("PUT", path, self.policy, role="admin")).expect(200)
