"""Static files: read once from package data, compressed once, and named after their content.

The digest is part of the address, so that a browser may keep a file for ever and a new release has new addresses.
Nothing is loaded from another host: htmx and uPlot are vendored, with their licences beside them and their origin in
`static/vendor/manifest.json`.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Final

PREFIX: Final = "/ui/static/"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_SERVED: Final = (
    "tokens.css",
    "base.css",
    "app.css",
    "app.js",
    "charts.js",
    "live.js",
    "runs.js",
    "timeline.js",
    "vendor/uPlot.iife.min.js",
    "vendor/uPlot.min.css",
)
_JOINED: Final = {"htmx.js": ("vendor/htmx.min.js", "vendor/hx-sse.min.js")}
"""Files that are served as one. htmx reads a page as soon as its script has run; an extension in a script of its own
may come a moment later, on a busy machine, and then the page has no live stream until it is loaded again."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, as it is sent."""

    path: str
    media: str
    raw: bytes
    packed: bytes
    etag: str


class Assets:
    """All files that pages refer to."""

    @cached_property
    def _by_name(self) -> dict[str, Asset]:
        single = {name: _load(name, (name,)) for name in _SERVED}
        return single | {name: _load(name, parts) for name, parts in _JOINED.items()}

    @cached_property
    def _by_path(self) -> dict[str, Asset]:
        return {asset.path: asset for asset in self._by_name.values()}

    def url(self, name: str) -> str:
        """The address of a file; raises `KeyError` for one that is not served."""
        return self._by_name[name].path

    def find(self, path: str) -> Asset | None:
        """The file at an address."""
        return self._by_path.get(path)


def _load(name: str, parts: Sequence[str]) -> Asset:
    folder = files("penstock.server.dashboard") / "static"
    raw = b"\n".join(folder.joinpath(*part.split("/")).read_bytes() for part in parts)
    digest = hashlib.sha256(raw).hexdigest()
    path = f"{PREFIX}{digest[:16]}/{name.rpartition('/')[2]}"
    media = _TYPES[name[name.rindex(".") :]]
    return Asset(path, media, raw, gzip.compress(raw, mtime=0), f'"{digest[:32]}"')


ASSETS: Final = Assets()
