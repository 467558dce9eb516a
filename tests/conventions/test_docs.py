"""The documentation is held to the program: what it names exists, what it shows works, what it counts is right."""

from __future__ import annotations

import importlib
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from penstock.cli.contract.program import dw
from penstock.cli.program import Program, program
from penstock.cli.simulation.commands import SimulateNoun
from penstock.cli.workers.run_command import WorkerNoun
from penstock.server.operations.table import OPERATIONS
from penstock.settings.catalogue import CLIENT_VARIABLES, NAMES
from penstock.wire.signatures import SignedRequest, read_header, sign

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FRONT = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*FRONT, *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INVARIANT = re.compile(r"`([a-z]+(?:-[a-z]+)+)`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, language: str) -> Iterator[str]:
    return (body for _, kind, body in FENCE.findall(page.read_text()) if kind == language)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site generator and the repository's viewer make them."""
    titles = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    return {re.sub(r" ", "-", re.sub(r"[^\w\- ]", "", title).strip().lower()) for title in titles}


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^()\s]+)\)", prose(page)):
        if not re.match(r"\w+:", target):
            yield target


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        assert aim.is_file(), f"{target} leads nowhere"
        assert not anchor or anchor in anchors(aim), f"{target}: there is no such heading"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_of_the_site_links_only_inside_the_site(page: Path) -> None:
    for target in links(page):
        aim = (page.parent / target.partition("#")[0]).resolve()
        assert aim.is_relative_to(DOCS), f"{target} is not part of the site"


def listed(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from listed(entry)


def test_the_site_lists_every_page_once() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert sorted(listed(nav)) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@each_page
def test_every_file_that_is_named_exists(page: Path) -> None:
    for name in re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", page.read_text()):
        assert (ROOT / name).exists(), name


# commands


RUN_BY_DEFAULT = (WorkerNoun, SimulateNoun)
"""Nouns that take an argument of `run` instead of a verb."""


def commands(page: Path) -> Iterator[list[str]]:
    """Every command line that a page shows, without prompt, assignments and path."""
    for block in blocks(page, "console"):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            prompt, _, text = line.strip().partition(" ")
            if prompt == "$":
                yield words(text)
    for text in re.findall(r"`((?:penstock|dw) [^`…]+)`", prose(page)):
        yield words(text)


def words(text: str) -> list[str]:
    found = shlex.split(text, comments=True)
    while found and re.match(r"\w+=", found[0]):
        found = found[1:]
    return [found[0].removeprefix(".venv/bin/"), *found[1:]] if found else []


@each_page
def test_every_command_shown_is_one_that_the_program_takes(page: Path) -> None:
    for name, *rest in filter(None, commands(page)):
        if name in ("penstock", "dw"):
            check_command(" ".join([name, *rest]), rest, dw if name == "dw" else program)


def check_command(shown: str, rest: list[str], root: Program) -> None:
    command: click.Command = root
    ctx = click.Context(root)
    if root is dw and rest and not rest[0].startswith("-"):
        _, found, rest = dw.resolve_command(ctx, rest)
        assert found is not None
        command = found
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        noun, _, verb = rest[0].partition(":")
        if isinstance(command, RUN_BY_DEFAULT) and rest[0] not in command.commands:
            rest = ["run", *rest]
        elif verb:
            rest = [noun, verb, *rest[1:]]
        below = command.get_command(ctx, rest[0])
        assert below is not None, f"{shown}: there is no {rest[0]}"
        command, rest = below, rest[1:]
    if isinstance(command, RUN_BY_DEFAULT) and rest and rest != ["--help"]:
        command = command.commands["run"]
    known = {option for param in command.get_params(ctx) for option in (*param.opts, *param.secondary_opts)}
    for word in rest:
        option = word.partition("=")[0]
        assert not option.startswith("--") or option in known, f"{shown}: there is no {option}"


@each_page
def test_every_make_target_shown_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name, *rest in filter(None, commands(page)):
        if name == "make":
            assert {word for word in rest if "=" not in word} <= targets, rest


# settings, routes, limits


@each_page
def test_every_setting_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"\bDW_[A-Z]+(?:_[A-Z]+)*\b", page.read_text()))
    assert named <= {*NAMES, *CLIENT_VARIABLES}


@each_page
def test_every_route_that_is_named_exists(page: Path) -> None:
    shapes = [re.compile(re.sub(r"\{\w+\}", "[^/]+", operation.path)) for operation in OPERATIONS]
    for path in re.findall(r"(?<![\w.])/api/[\w$/{}-]+(?![\w/…])", page.read_text()):
        assert any(shape.fullmatch(path) for shape in shapes), path


def fixed_limits() -> list[tuple[str, str]]:
    rows = (DOCS / "guarantees.md").read_text()
    return re.findall(r"^\|[^|]+\| ([^|]+) \| `(penstock[\w.]+:\w+)` \|$", rows, re.MULTILINE)


def test_there_are_limits_and_commands_to_check() -> None:
    assert fixed_limits()
    assert any(commands(ROOT / "README.md"))


@pytest.mark.parametrize(("value", "where"), fixed_limits(), ids=lambda text: text)
def test_a_fixed_limit_is_the_one_in_the_code(value: str, where: str) -> None:
    module, _, name = where.partition(":")
    assert value == str(getattr(importlib.import_module(module), name))


# invariants


def invariants() -> dict[str, str]:
    """Each named invariant with its section."""
    parts = re.split(r"^## `([a-z-]+)`$", (DOCS / "invariants.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        for suffix in ("*.py", "*.sql"):
            yield from (ROOT / folder).rglob(suffix)


def test_every_invariant_that_is_listed_is_named_in_the_code() -> None:
    named = {word for path in sources("src", "tests") for word in INVARIANT.findall(path.read_text())}
    assert invariants().keys() <= named


def test_every_invariant_that_the_code_names_is_listed() -> None:
    for path in sources("src", "tests"):
        unknown = set(INVARIANT.findall(path.read_text())) - invariants().keys()
        assert not unknown, f"{path.relative_to(ROOT)} names {unknown}: list it in docs/invariants.md"


@pytest.mark.parametrize("name", invariants())
def test_an_invariant_says_where_it_is_kept_and_tested(name: str) -> None:
    section = invariants()[name]
    assert re.search(r"^- Code: ", section, re.MULTILINE)
    assert re.search(r"^- Tests: `tests/", section, re.MULTILINE)


# examples


@pytest.mark.parametrize("page", [ROOT / "README.md"], ids=["README.md"])
def test_the_example_that_is_shown_is_the_one_that_runs(page: Path) -> None:
    assert list(blocks(page, "python")) == [(DOCS / "examples" / "greeter.py").read_text()]


def test_the_worked_example_of_a_signature_is_right() -> None:
    text = (DOCS / "guides" / "authentication.md").read_text()
    [value] = re.findall(r"^X-Penstock-Signature: (keyid=operator.+)$", text, re.MULTILINE)
    [key] = re.findall(r"The key is `([^`]+)`", text)
    header = read_header(value)
    assert header is not None
    body = b'{"workflow_type":"greeter"}'
    assert body.decode() in text
    request = SignedRequest(
        "POST", "/api/workflows", "", "penstock.example", "orders", "application/json", "", body
    )
    signed = sign(request, secret=key, key_id=header.key_id, created=header.created, nonce=header.nonce)
    assert signed == value


def test_the_example_client_signs_as_the_server_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KEY", "a-key-for-this-test")
    example: dict[str, Any] = {"__name__": "example"}
    exec((DOCS / "examples" / "signed.py").read_text(), example)
    value = example["signature"]("GET", "/api/workflows?page_size=5", b"", "")
    header = read_header(value)
    assert header is not None
    request = SignedRequest(
        "GET", "/api/workflows", "page_size=5", example["HOST"], example["NAMESPACE"], "", "", b""
    )
    signed = sign(
        request,
        secret="a-key-for-this-test",
        key_id=header.key_id,
        created=header.created,
        nonce=header.nonce,
    )
    assert signed == value
