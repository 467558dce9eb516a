"""A directory that looks like a clone of the repository, for pages that tell their readers to stand in one."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MADE_IN_IT = (".venv", ".penstock", ".git", "uv.lock")
"""What commands make in a clone, or what would be written through a link."""


def clone(folder: Path) -> Path:
    """Links to everything at the top of the repository, with the running environment as `.venv`.

    Files that commands write there do not end up in the repository; settings of pytest are found as in a clone.
    """
    made = folder / "penstock"
    made.mkdir()
    for each in ROOT.iterdir():
        if each.name not in _MADE_IN_IT and not each.name.endswith("_cache"):
            (made / each.name).symlink_to(each)
    (made / ".venv").symlink_to(Path(sys.prefix))
    return made
