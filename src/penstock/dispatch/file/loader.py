"""Loads a dispatch configuration: files, then the environment, then flags; later sources override earlier ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.dispatch.config import DispatchConfig
from penstock.dispatch.file import checks
from penstock.dispatch.file.builder import build
from penstock.dispatch.file.shape import ROOT
from penstock.dispatch.file.sources import (
    ConfigSource,
    UnreadableFile,
    from_environment,
    from_overrides,
    merge_over,
    read_file,
)
from penstock.dispatch.frozen import FrozenDict
from penstock.dispatch.inspection.effective import fingerprint
from penstock.dispatch.problems import DispatchConfigError
from penstock.schema.problems import Problem
from penstock.schema.shapes import ShapeReader

logger = logging.getLogger("penstock.dispatch")
FilePath = str | os.PathLike[str]


def load_dispatch(
    path: FilePath | Sequence[FilePath] | None = None,
    root: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
    strict: bool = False,
) -> DispatchConfig:
    """The configuration that one or several files give, the later over the earlier.

    `root` is the table that holds it: by default whichever of `penstock`, `temporal` and `tool.penstock` there is.
    Variables that begin with `PENSTOCK__` come next (`environ`: this process's unless given), then `overrides` of
    the form `path=value`. `DispatchConfigError` names every problem at once.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else list(path or ())
    source = ConfigSource()
    problems: list[Problem] = []
    for each in paths:
        try:
            merge_over(source, read_file(each, root))
        except UnreadableFile as error:
            problems.append(error.problem)
    if root is not None and paths and not problems and not source.has_table:
        problems.append(_without_root(root, source.roots, paths))
    if problems:
        raise DispatchConfigError(problems)
    from_variables, more = from_environment(os.environ if environ is None else environ, source.tree)
    merge_over(source, from_variables)
    from_flags, most = from_overrides(overrides, source.root)
    merge_over(source, from_flags)
    config = _built(source, [*more, *most], strict)
    config = replace(config, files=tuple(os.fspath(each) for each in paths))
    if config.unused:
        logger.info("not used by Penstock: %s", ", ".join(config.unused))
    return config


def _without_root(root: str, there: Sequence[str], paths: Sequence[FilePath]) -> Problem:
    """Refuse a root table that was requested by name and is missing."""
    known = " and ".join(f"[{each}]" for each in dict.fromkeys(there))
    files = ", ".join(os.fspath(each) for each in paths)
    return Problem("", f"has no table [{root}]", f"there is {known}" if known else "", files)


def dispatch_from(
    tree: Mapping[str, Any], root: str = "penstock", *, overrides: Iterable[str] = (), strict: bool = False
) -> DispatchConfig:
    """The configuration that a tree of values gives, as the root table of a file would hold them."""
    source = ConfigSource(root=tuple(root.split(".")))
    merge_over(source, ConfigSource(dict(tree), dict.fromkeys(_paths(tree, ()), "given in code")))
    from_flags, problems = from_overrides(overrides, source.root)
    merge_over(source, from_flags)
    return _built(source, problems, strict)


def _paths(tree: Mapping[str, Any], path: tuple[str, ...]) -> list[tuple[str | int, ...]]:
    found: list[tuple[str | int, ...]] = []
    for name, value in tree.items():
        found.append((*path, name))
        if isinstance(value, Mapping):
            found += _paths(value, (*path, name))
    return found


def _built(source: ConfigSource, problems: Sequence[Problem], strict: bool) -> DispatchConfig:
    """Build the configuration; all problems, of single values and of the whole, are raised together."""
    root = source.root or ("penstock",)
    reader = ShapeReader(root, source.origin_of, list(problems))
    found = reader.table(ROOT, source.tree, ())
    home = "temporal_task_queue" if root == ("temporal",) else "default"
    config = build(found, home, reader)
    config = replace(config, root=".".join(root), origins=FrozenDict(source.origins))
    checks.errors(config, reader)
    warnings = [reader.problem(*each) for each in checks.old_names(config)]
    undeclared = [reader.problem(*each) for each in checks.undeclared(config, reader)]
    (reader.problems if strict or config.strict_queues else warnings).extend(undeclared)
    if reader.problems:
        raise DispatchConfigError(reader.problems)
    warnings += [reader.problem(*each) for each in checks.oddities(config)]
    config = replace(config, warnings=tuple(warnings), unused=tuple(reader.unused))
    return replace(config, fingerprint=fingerprint(config))
