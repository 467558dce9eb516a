"""Who may import whom: the contracts of pyproject.toml hold, and optional packages bring theirs with them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tomli

ROOT = Path(__file__).parents[2]
CORE = ROOT / "src" / "penstock" / "core"

# Everything that a decision may use: values, arithmetic and ways to combine them.
CORE_MAY_IMPORT = (
    *("__future__", "abc", "collections", "contextlib", "copy", "dataclasses", "enum", "types", "typing"),
    *("bisect", "decimal", "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator"),
    *(
        "base64",
        "binascii",
        "hashlib",
        "hmac",
        "json",
        "re",
        "string",
        "struct",
        "unicodedata",
        "zlib",
    ),
    "msgspec",  # values that are cheap to make and to change
    "datetime",  # calendar arithmetic in core.timestamps and core.schedules, which are handed their instants
    "cronsim",  # the wall-clock times of cron expressions
    *("penstock.core", "penstock.errors", "penstock.schema.nearest"),
)

# A contract cannot name a package that does not exist, so each of these comes with its package.
CONTRACTS_OF_OPTIONAL_PACKAGES = {
    "sdk": "Server and SDK meet only on the wire",
    "simulator": "The simulator drives the engine, and knows neither server nor store",
}


def test_every_import_contract_is_kept(tmp_path: Path) -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [lint_imports, "--no-logo", "--cache-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_core_imports_only_from_the_short_list() -> None:
    strays = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in sorted(CORE.rglob("*.py"))
        for line, module in _imports_of(path)
        if not _allowed(module)
    ]
    assert strays == []


def test_a_package_with_a_contract_of_its_own_has_it() -> None:
    contracts = tomli.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    names = {contract["name"] for contract in contracts}
    missing = [
        f"src/penstock/{package} exists: add the contract {contract!r}"
        for package, contract in CONTRACTS_OF_OPTIONAL_PACKAGES.items()
        if (ROOT / "src" / "penstock" / package).exists() and contract not in names
    ]
    assert missing == []


def _imports_of(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module == "penstock":
            for alias in node.names:
                yield node.lineno, f"penstock.{alias.name}"
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "."


def _allowed(module: str) -> bool:
    return any(module == allowed or module.startswith(f"{allowed}.") for allowed in CORE_MAY_IMPORT)
