"""Pyright infers the types that the files `typing_of_….py` assert, and refuses exactly what mypy refuses there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "tests" / "sdk").glob("*/typing_of_*.py"))
ONLY_MYPY = {'assert_type(client.execute_workflow(Order.run, 1, task_queue="q"), str)'}
"""What pyright infers as Any: overloads of an async method behind two wrappers, in the client without asyncio."""


def test_pyright_refuses_what_mypy_refuses_and_infers_the_same(tmp_path: Path) -> None:
    configuration = {
        "include": [str(each) for each in FILES],
        "extraPaths": [str(ROOT / "src"), str(ROOT)],
        "typeCheckingMode": "standard",
        "enableTypeIgnoreComments": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True, check=False
    )
    found: list[dict[str, Any]] = json.loads(ended.stdout)["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    for path in FILES:
        lines = path.read_text().splitlines()
        refused = {
            lines[each["range"]["start"]["line"]].strip() for each in errors if each["file"] == str(path)
        }
        expected = {line.strip() for line in lines if "# type: ignore[" in line}
        assert refused - ONLY_MYPY == expected, path.name
