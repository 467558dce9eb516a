"""The command that moves code from Temporal's SDK to Penstock."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli.grammar import CommandReach, noun
from penstock.cli.migration.import_rewriter import RewrittenFile, python_files
from penstock.cli.output.escapes import shown
from penstock.cli.output.exits import Exit
from penstock.cli.transport.session import CliSession, show_json

_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})


@noun("migrate", example="penstock migrate temporal src")
def migrate() -> None:
    """Move code from other systems to Penstock."""


@migrate.verb("temporal", example="penstock migrate temporal src --dry-run", reach=CommandReach.HERE)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Report only; change no file.")
@click.pass_obj
def migrate_temporal(session: CliSession, path: Path, dry_run: bool) -> None:
    """Rewrite imports of temporalio, and report by line what is left to do; exit code 1 if anything is."""
    results = dict(python_files(_sources(path)))
    changed = {
        name: found for name, found in results.items() if isinstance(found, RewrittenFile) and found.changed
    }
    if not dry_run:
        for name, found in changed.items():
            _replace(Path(name), found.source)
    if session.json:
        body = [_as_json(name, found, dry_run=dry_run) for name, found in results.items()]
        show_json(json.dumps(body, ensure_ascii=False))
    else:
        _print(results, changed, dry_run=dry_run)
    if any(isinstance(found, SyntaxError) or found.notes for found in results.values()):
        click.get_current_context().exit(Exit.REFUSED)


def _sources(path: Path) -> Iterator[tuple[str, bytes]]:
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    for file in files:
        inside = file.relative_to(path).parts[:-1] if path.is_dir() else ()
        if not any(part in _SKIPPED or part.startswith(".") for part in inside) and file.is_file():
            yield str(file), file.read_bytes()


def _replace(file: Path, source: bytes) -> None:
    """Replace the content of a file at once, so that a crash leaves the old or the new one."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_bytes(source)
    beside.chmod(file.stat().st_mode)
    beside.replace(file)


def _print(
    results: dict[str, RewrittenFile | SyntaxError], changed: dict[str, RewrittenFile], *, dry_run: bool
) -> None:
    left = 0
    for name, found in results.items():
        if isinstance(found, SyntaxError):
            left += 1
            click.echo(f"{shown(name)}:{found.lineno or 1}: cannot be read as Python: {found.msg}")
            continue
        left += len(found.notes)
        for note in found.notes:
            line = note.line if dry_run else note.line_after
            click.echo(f"{shown(name)}:{line}: {note.text}")
    verb = "to change" if dry_run else "changed"
    places = sum(found.changed for found in changed.values())
    click.echo(f"files {verb}: {len(changed)}, places: {places}, left to do: {left}", err=True)


def _as_json(name: str, found: RewrittenFile | SyntaxError, *, dry_run: bool) -> dict[str, object]:
    if isinstance(found, SyntaxError):
        return {"file": name, "changed": 0, "error": found.msg, "line": found.lineno, "notes": []}
    notes = [{"line": note.line if dry_run else note.line_after, "text": note.text} for note in found.notes]
    return {"file": name, "changed": found.changed, "error": None, "line": None, "notes": notes}
