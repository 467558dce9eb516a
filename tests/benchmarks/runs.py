"""A quick run of the program, as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def quick_run(
    folder: Path, *only: str, seconds_max: float, environment: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """Its JSON, and what it printed."""
    target = folder / "made" / "report.json"
    chosen = [word for name in only for word in ("--only", name)]
    ended = subprocess.run(
        (sys.executable, "-m", "benchmarks", "--quick", *chosen, "--json", str(target)),
        cwd=ROOT,
        env=os.environ | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(target.read_text()), ended.stdout
