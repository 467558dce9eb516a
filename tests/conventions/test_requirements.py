"""The committed pins name packages and hashes, never a place, and cover what pyproject.toml asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINS = ("runtime", "dev")

PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;]+)(?: ; [^\\]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")
COMMENT = re.compile(r"^    #(?: via(?: [A-Za-z0-9._-]+)?|   [A-Za-z0-9._-]+)(?: \([^:/]*\))?$")


@pytest.mark.parametrize("kind", PINS)
def test_a_pin_file_holds_pins_and_hashes_and_no_address(kind: str) -> None:
    strange = [
        f"{kind}.txt:{number}: {line}"
        for number, line in enumerate(_lines(kind), start=1)
        if not (PIN.match(line) or HASH.match(line) or COMMENT.match(line))
    ]
    assert strange == []


@pytest.mark.parametrize("kind", PINS)
def test_every_pin_has_a_hash(kind: str) -> None:
    lines = _lines(kind)
    bare = [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if PIN.match(line) and not HASH.match(after)
    ]
    assert bare == []


def test_the_runtime_pins_cover_the_dependencies_of_the_package() -> None:
    _assert_covered(_project()["project"]["dependencies"], "runtime")


def test_the_development_pins_cover_the_package_and_every_group() -> None:
    project = _project()
    wanted = [
        entry for group in project["dependency-groups"].values() for entry in group if isinstance(entry, str)
    ]
    _assert_covered([*project["project"]["dependencies"], *wanted], "dev")


def test_both_pin_files_agree() -> None:
    runtime, development = _pinned("runtime"), _pinned("dev")
    assert {name: development.get(name) for name in runtime} == runtime


def test_the_lock_that_names_hosts_is_not_committed() -> None:
    assert "uv.lock" in (ROOT / ".gitignore").read_text().splitlines()


def _assert_covered(wanted: list[str], kind: str) -> None:
    pinned = _pinned(kind)
    for text in wanted:
        requirement = Requirement(text)
        versions = pinned.get(canonicalize_name(requirement.name), set())
        assert versions, f"{text} is not in requirements/{kind}.txt: run make lock"
        assert all(requirement.specifier.contains(version) for version in versions), f"{text}: run make lock"


def _pinned(kind: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in _lines(kind):
        if pin := PIN.match(line):
            found.setdefault(canonicalize_name(pin["name"]), set()).add(pin["version"])
    return found


def _lines(kind: str) -> list[str]:
    return (ROOT / "requirements" / f"{kind}.txt").read_text().splitlines()


def _project() -> dict[str, Any]:
    return tomli.loads((ROOT / "pyproject.toml").read_text())
