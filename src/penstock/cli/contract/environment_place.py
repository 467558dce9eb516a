"""Where the environments of `dw` are kept, and whether one may be selected: known without reading the file."""

from __future__ import annotations

import os
from pathlib import Path

ENVIRONMENT_VARIABLE = "DW_ENV"
FOLDER_VARIABLE = "DW_CONFIG_HOME"


def path() -> Path:
    """The file of the environments."""
    if folder := os.environ.get(FOLDER_VARIABLE):
        return Path(folder) / "config.json"
    shared = os.environ.get("XDG_CONFIG_HOME") or (os.environ.get("APPDATA") if os.name == "nt" else None)
    return (Path(shared) if shared else Path.home() / ".config") / "dw" / "config.json"


def may_be_selected(flag: str | None) -> bool:
    """Whether an environment was named, or the file may select one."""
    return bool(flag or os.environ.get(ENVIRONMENT_VARIABLE)) or path().exists()
