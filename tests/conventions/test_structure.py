"""Structure of the sources: unique class names, modules named for what they hold, small folders, simple functions.

Each test prints every offender. The allow-lists name the exceptions, each with its
reason; they only shrink.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from radon.complexity import cc_visit

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "penstock"
MODULES_MAX = 15
"""Modules of a folder, without its `__init__`."""
COMPLEXITY_MAX = 20
"""Radon's grade C; grade D begins above it."""
ENGINE_COMPLEXITY_MAX = 10
GLOSSARY_ROWS_MAX = 60

SHARED_CLASS_NAMES = {
    "ActivityHandle": "public: a handle in workflow code and one of a client, as in Temporal's SDK",
    "RetryPolicy": "public, and the JSON shape of the same policy",
    "ScheduleSpec": "public: as in Temporal's SDK; in the core, the same with parsed expressions",
    "Task": "public: a task of an app; in the core, a row of a task queue",
    "LeaseLost": "the server's refusal, and the error that a worker raises for it",
    "Selection": "public in penstock.dispatch; in the core, a wait for one of several",
}

ING_WORDS = {
    "logging": "as in the standard library",
    "mapping": "a table from one thing to another",
    "messaging": "a subject: signals, updates, queries and streams",
    "routing": "which handler or queue gets a request",
    "signing": "signatures of requests",
    "tuning": "parameters of the garbage collector",
}
"""Nouns of the field, as the last word of a module's name."""

LARGE_FOLDERS: dict[str, str] = {}

COMPLEX_FUNCTIONS: dict[str, str] = {}


def test_no_class_name_is_used_twice() -> None:
    places = defaultdict(list)
    for path in modules():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{shown(path)}:{node.lineno}")
    twice = [
        f"class {name} is defined in {' and '.join(where)}: give each its own name"
        for name, where in sorted(places.items())
        if len(where) > 1 and name not in SHARED_CLASS_NAMES
    ]
    assert not twice, listed(twice)


def test_modules_are_named_for_what_they_hold() -> None:
    doing = [
        f"{shown(path)}: name it for what it holds, not for what it does"
        for path in modules()
        if path.stem.endswith("ing") and path.stem.rpartition("_")[2] not in ING_WORDS
    ]
    assert not doing, listed(doing)


def test_no_folder_has_too_many_modules() -> None:
    counts: defaultdict[str, int] = defaultdict(int)
    for path in modules():
        counts[shown(path.parent)] += path.stem != "__init__"
    large = [
        f"{folder} has {count} modules: divide it by subject ({MODULES_MAX} at most)"
        for folder, count in sorted(counts.items())
        if count > MODULES_MAX and folder not in LARGE_FOLDERS
    ]
    assert not large, listed(large)


def test_no_function_is_too_complex() -> None:
    complex_ones = []
    for path in modules():
        most = ENGINE_COMPLEXITY_MAX if (SOURCES / "engine") in path.parents else COMPLEXITY_MAX
        for block in cc_visit(path.read_text()):
            name = f"{shown(path)}:{getattr(block, 'fullname', block.name)}"
            if block.complexity > most and name not in COMPLEX_FUNCTIONS:
                complex_ones.append(f"{name} has complexity {block.complexity}: split it ({most} at most)")
    assert not complex_ones, listed(complex_ones)


def test_the_glossary_stays_short() -> None:
    page = (ROOT / "docs" / "concepts" / "words.md").read_text().splitlines()
    rows = [line for line in page if line.startswith("| ") and not line.startswith("| Word |")]
    assert len(rows) <= GLOSSARY_ROWS_MAX, (
        f"{len(rows)} words, at most {GLOSSARY_ROWS_MAX}: use a word of the field instead of a new one"
    )


def test_every_exception_is_still_one() -> None:
    """An entry for something that no longer exists is removed from its list."""
    paths = {shown(path) for path in modules()} | {shown(path.parent) for path in modules()}
    named = {entry.partition(":")[0] for entry in (*LARGE_FOLDERS, *COMPLEX_FUNCTIONS)}
    gone = sorted(named - paths)
    assert not gone, listed([f"{entry} does not exist any more" for entry in gone])


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(SOURCES.rglob("*.py")))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def shown(path: Path) -> str:
    return str(path.relative_to(SOURCES.parent))


def listed(lines: list[str]) -> str:
    return "\n" + "\n".join(lines)
