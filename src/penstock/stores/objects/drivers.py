"""Opens external storage by a policy's driver and configuration, within what the operator of the server allows.

A policy comes over HTTP from an administrator of the server, and still must not make it write anywhere on its disk or
connect anywhere in its network. So the directory of the `local` driver lies below `DW_EXTERNAL_STORAGE_DIR`, and an
endpoint of the `s3` driver is one of `DW_EXTERNAL_STORAGE_ENDPOINTS`. Credentials are named, never given: the profile
`backup` is read from `STORAGE_BACKUP_ACCESS_KEY_ID` and `STORAGE_BACKUP_SECRET_ACCESS_KEY`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import InvalidInput, Reason
from penstock.ports.objects import ObjectStorage
from penstock.settings import ExternalStorageLimits
from penstock.stores.objects import s3
from penstock.stores.objects.directory import DirectoryStorage

_PROFILE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
_OPEN_MAX: Final = 64
"""Storages kept open; a place that is used again is opened again."""
_LOCAL_KEYS: Final = frozenset({"uri"})
_S3_KEYS: Final = frozenset({"bucket", "prefix", "region", "endpoint", "auth_profile"})


class Drivers:
    """The drivers of this server. Storages are kept open and shared.

    Args:
        limits: what the operator of the server allows.
        environment: where credentials are read from.
    """

    def __init__(self, limits: ExternalStorageLimits, environment: Mapping[str, str] | None = None) -> None:
        self._limits = limits
        self._environment = os.environ if environment is None else environment
        self._open: dict[str, ObjectStorage] = {}

    def open(self, place: str) -> ObjectStorage:
        found = self._open.get(place)
        if found is None:
            decoded = msgspec.json.decode(place)
            found = self._opened(decoded["driver"], decoded["config"])
            if len(self._open) >= _OPEN_MAX:
                self._open.clear()
            self._open[place] = found
        return found

    def _opened(self, driver: str, config: Mapping[str, str]) -> ObjectStorage:
        match driver:
            case "local":
                _check_keys(driver, config, _LOCAL_KEYS)
                return DirectoryStorage(self._directory(config.get("uri")))
            case "s3":
                _check_keys(driver, config, _S3_KEYS)
                return self._bucket(config)
        raise _refused(driver, f"This server has no driver {driver!r}; it has local and s3.")

    def _directory(self, uri: str | None) -> Path:
        root = self._limits.directory
        if root is None:
            raise _refused(
                "local", "This server keeps no payloads in files: DW_EXTERNAL_STORAGE_DIR is not set."
            )
        root = root.resolve()
        path = (root / _path_of(uri)).resolve() if uri else root
        if not path.is_relative_to(root):
            raise _refused("local", "config.uri must lie below the directory of DW_EXTERNAL_STORAGE_DIR.")
        return path

    def _bucket(self, config: Mapping[str, str]) -> ObjectStorage:
        bucket, prefix = config.get("bucket", ""), config.get("prefix", "").strip("/")
        if not _BUCKET.fullmatch(bucket):
            raise _refused("s3", "config.bucket must be the name of a bucket.")
        if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
            raise _refused("s3", "config.prefix must be a path without empty parts, . and ..")
        endpoint = config.get("endpoint")
        if endpoint is not None and endpoint.rstrip("/") not in self._limits.endpoints:
            raise _refused(
                "s3", "config.endpoint must be one of DW_EXTERNAL_STORAGE_ENDPOINTS of the server."
            )
        try:
            return s3.open_bucket(
                bucket,
                prefix,
                region=config.get("region"),
                endpoint=endpoint,
                credentials=self._credentials(config.get("auth_profile")),
            )
        except ImportError:
            raise _refused("s3", "The server needs its extra for this: pip install 'penstock[s3]'.") from None

    def _credentials(self, profile: str | None) -> dict[str, str]:
        """The credentials of a profile; without one, those of the usual AWS_* variables or of the machine's role."""
        if profile is None:
            start = "AWS_"
        elif _PROFILE.fullmatch(profile):
            start = f"STORAGE_{profile.upper()}_"
        else:
            raise _refused(
                "s3", "config.auth_profile must be letters, digits and _, beginning with a letter."
            )
        found = {
            name: self._environment[start + name]
            for name in s3.CREDENTIALS
            if start + name in self._environment
        }
        if profile is not None and not {"ACCESS_KEY_ID", "SECRET_ACCESS_KEY"} <= found.keys():
            raise _refused(
                "s3",
                f"The environment of the server has no {start}ACCESS_KEY_ID and {start}SECRET_ACCESS_KEY.",
            )
        return found


def _path_of(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme in ("", "file") and parts.netloc in ("", "localhost") and "\0" not in uri:
        return unquote(parts.path) if parts.scheme else uri
    raise _refused("local", "config.uri must be a path or a file:// address of this machine.")


def _check_keys(driver: str, config: Mapping[str, str], known: frozenset[str]) -> None:
    unknown = sorted(config.keys() - known)
    if unknown:
        allowed = ", ".join(sorted(known))
        raise _refused(
            driver, f"config.{unknown[0]} means nothing to the driver {driver}; it reads {allowed}."
        )


def _refused(driver: str, message: str) -> InvalidInput:
    return InvalidInput(Reason.STORAGE_DRIVER_UNAVAILABLE, message, driver=driver, status="failed")
