"""What we ship: the wheel and the sdist hold the package whole, and nothing else."""

from __future__ import annotations

import email
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import tomli

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]


@dataclass(frozen=True)
class Built:
    """The files inside what `uv build` made; the wheel is built from the sdist."""

    wheel: frozenset[str]
    sdist: frozenset[str]
    metadata: str
    entry_points: str


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("dist")
    uv = Path(sys.executable).with_name("uv")
    options = ["--offline", "--no-cache", "--python", sys.executable, "--out-dir", str(folder)]
    ran = subprocess.run([uv, "build", *options, ROOT], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    with zipfile.ZipFile(folder / f"penstock-{VERSION}-py3-none-any.whl") as wheel:
        info = f"penstock-{VERSION}.dist-info"
        names = frozenset(name for name in wheel.namelist() if not name.endswith("/"))
        metadata = wheel.read(f"{info}/METADATA").decode()
        entry_points = wheel.read(f"{info}/entry_points.txt").decode()
    with tarfile.open(folder / f"penstock-{VERSION}.tar.gz") as sdist:
        shipped = frozenset(member.name for member in sdist.getmembers() if member.isfile())
    return Built(names, shipped, metadata, entry_points)


def test_the_wheel_holds_every_file_of_the_package_and_its_own_records(built: Built) -> None:
    info = f"penstock-{VERSION}.dist-info"
    records = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert built.wheel == _package_files() | {f"{info}/{record}" for record in records}


def test_the_wheel_carries_the_statements_and_the_type_marker(built: Built) -> None:
    statements = {path for path in _package_files() if path.endswith(".sql")}
    assert statements | {"penstock/py.typed"} <= built.wheel


def test_the_sdist_holds_what_is_needed_to_build_and_nothing_else(built: Built) -> None:
    root = f"penstock-{VERSION}"
    # The backend rewrites pyproject.toml for the sdist and keeps ours beside it.
    papers = {"PKG-INFO", "pyproject.toml", "pyproject.toml.orig", "README.md", "LICENSE"}
    sources = {f"src/{path}" for path in _package_files()}
    kit = {str(path.relative_to(ROOT)) for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert built.sdist == {f"{root}/{path}" for path in papers | sources | kit}


def test_no_test_or_benchmark_is_shipped(built: Built) -> None:
    shipped = built.wheel | built.sdist
    assert [path for path in shipped if "tests/" in path or "benchmarks/" in path] == []


def test_both_commands_are_installed(built: Built) -> None:
    for command, target in PROJECT["scripts"].items():
        assert f"{command} = {target}" in built.entry_points


def test_the_metadata_names_the_licence_and_the_oldest_python(built: Built) -> None:
    metadata = email.message_from_string(built.metadata)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def _package_files() -> set[str]:
    return {
        path.relative_to(SOURCES).as_posix()
        for path in (SOURCES / "penstock").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
