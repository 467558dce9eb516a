"""Rewrites the imports of a Python file from Temporal's SDK to Penstock, by the table of names.

The file is parsed, and its text changed only where an import or the name of a moved attribute stands, so that the rest
stays as it is, byte for byte. What has no place here keeps its import, which fails where it is used, and is reported
with its line. A file that does not parse is reported and left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.cli.migration.temporal_names import HOMES, NameRow, Parity, name_rows

_ROWS: Final[Mapping[tuple[str, str], NameRow]] = {(row.module, row.name): row for row in name_rows()}
_MODULES: Final = {
    **{name: ("penstock", name) for name in ("workflow", "activity", "client", "worker", "testing")},
    "exceptions": ("penstock", "failures"),
}
"""Where `from temporalio import NAME` finds the module."""
_BESIDE: Final = {
    ("contrib.opentelemetry", "TracingInterceptor"): "penstock.sdk.opentelemetry:TracingInterceptor",
    ("contrib.opentelemetry", "OpenTelemetryPlugin"): "penstock.sdk.opentelemetry:OpenTelemetryPlugin",
    ("plugin", "SimplePlugin"): "penstock:SimplePlugin",
}
"""Names of modules that the table does not have."""
_ADVICE: Final = {
    "converter": "converters have other base classes: see the guide on payloads",
    "contrib.pydantic": "nothing is needed: Pydantic models are read and written as they are",
    "api": "there is no gRPC: values are Python values",
    "service": "there is no gRPC: the client speaks HTTP",
    "runtime": "there is no runtime to configure: see Worker(metrics=…)",
    "envconfig": "Client.connect() reads profiles and DURABLE_WORKFLOW_… variables",
}
_ADDRESS: Final = re.compile(r"[\w.-]+:\d{2,5}")
_VARIABLE: Final = re.compile(r"TEMPORAL_[A-Z_]+")
_VARIABLES: Final = {
    "TEMPORAL_ADDRESS": "DURABLE_WORKFLOW_SERVER_URL",
    "TEMPORAL_NAMESPACE": "DURABLE_WORKFLOW_NAMESPACE",
    "TEMPORAL_API_KEY": "DURABLE_WORKFLOW_AUTH_TOKEN",
}


@dataclass(frozen=True, slots=True, order=True)
class MigrationNote:
    """What a person has to look at: a line, and what is to be done. The rewrite may have moved the line."""

    line: int
    text: str
    line_after: int = 0


@dataclass(slots=True)
class RewrittenFile:
    """A file after the rewrite."""

    source: bytes
    changed: int = 0
    """Number of places that were changed."""
    notes: list[MigrationNote] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Edit:
    begin: int
    end: int
    text: str


def rewrite(source: bytes) -> RewrittenFile:
    """Return a file with its imports rewritten. Raises `SyntaxError` if it is no Python.

    Args:
        source: the content of the file, in UTF-8.
    """
    tree = ast.parse(source)
    return _Rewriter(source).run(tree)


class _Rewriter:
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[_Edit] = []
        self._notes: set[MigrationNote] = set()
        self._modules: dict[str, str] = {}
        """Names by which the file knows modules of the SDK."""

    def run(self, tree: ast.Module) -> RewrittenFile:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                self._import_from(node)
            elif isinstance(node, ast.Import):
                self._import(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                self._attribute(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.Constant):
                self._constant(node)
        made = self._source
        for edit in sorted(self._edits, key=lambda each: each.begin, reverse=True):
            made = made[: edit.begin] + edit.text.encode() + made[edit.end :]
        notes = [replace(each, line_after=self._moved(each.line)) for each in sorted(self._notes)]
        return RewrittenFile(made, len(self._edits), notes)

    def _moved(self, line: int) -> int:
        """Return where a line is after the edits of the lines before it."""
        end = self._starts[line - 1]
        added = (
            each.text.count("\n") - self._source[each.begin : each.end].count(b"\n")
            for each in self._edits
            if each.end <= end
        )
        return line + sum(added)

    # Imports

    def _import_from(self, node: ast.ImportFrom) -> None:
        package, _, module = (node.module or "").partition(".")
        if package != "temporalio":
            return
        found: dict[str, list[str]] = {}
        for alias in node.names:
            place = self._place_of(node, module, alias)
            home, name = place or (node.module or "", alias.name)
            bound = alias.asname or (alias.name if name != alias.name else None)
            found.setdefault(home, []).append(name if bound in (None, name) else f"{name} as {bound}")
        if set(found) == {node.module}:
            return
        segment = self._segment(node)
        if b"#" in segment:
            self._note(node.lineno, "a comment inside of this import was dropped")
        lines = [f"from {home} import {', '.join(names)}" for home, names in found.items()]
        begin = self._offset(node.lineno, node.col_offset)
        before = self._source[self._starts[node.lineno - 1] : begin]
        joint = "; " if before.strip() else "\n" + before.decode()
        self._edits.append(_Edit(begin, begin + len(segment), joint.join(lines)))

    def _place_of(self, node: ast.ImportFrom, module: str, alias: ast.alias) -> tuple[str, str] | None:
        """Return our module and name of an imported name; None, with a note, if there is none."""
        if not module:
            place = _MODULES.get(alias.name)
            if place is not None:
                self._modules[alias.asname or alias.name] = alias.name
            else:
                self._note(node.lineno, f"temporalio.{alias.name}: {_advice(alias.name)}")
            return place
        beside = _BESIDE.get((module, alias.name))
        row = _ROWS.get((module, alias.name))
        if beside is None and row is None:
            what = f"temporalio.{module}.{alias.name}"
            self._note(node.lineno, f"{what}: {_advice(module)}")
            return None
        place_text = beside or (row.place if row is not None and row.parity is not Parity.NOT_HERE else None)
        if row is not None and (place_text is None or row.note):
            self._note(node.lineno, f"{alias.name}: {_plain(row)}")
        if place_text is None:
            return None
        home, _, name = place_text.partition(":")
        return home, name

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name.partition(".")[0] == "temporalio":
                self._note(node.lineno, f"import {alias.name}: write `from penstock import …` by hand")

    # Uses

    def _attribute(self, node: ast.Attribute) -> None:
        """Rename `workflow.NAME` where our name is another, and report what is not here."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self._modules:
            return
        module = self._modules[node.value.id]
        row = _ROWS.get((module, node.attr))
        if row is None or row.parity is Parity.SAME:
            if row is not None and not str(row.place).startswith(f"{HOMES[module]}:"):
                self._note(node.lineno, f"{module}.{node.attr}: use {str(row.place).replace(':', '.')}")
            return
        home, _, name = (row.place or "").partition(":")
        if home == HOMES[module] and row.parity is Parity.OTHER:
            end = self._offset(node.end_lineno or 0, node.end_col_offset or 0)
            self._edits.append(_Edit(end - len(node.attr.encode()), end, name))
            if not row.note:
                return
        self._note(node.lineno, f"{module}.{node.attr}: {_plain(row)}")

    def _call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "connect":
            return
        for argument in [
            *node.args[:1],
            *(each.value for each in node.keywords if each.arg == "target_host"),
        ]:
            if isinstance(argument, ast.Constant) and _ADDRESS.fullmatch(str(argument.value)):
                self._note(
                    argument.lineno,
                    f"{argument.value!r} is an address of a Temporal server: a Penstock server has one such as"
                    " http://127.0.0.1:8080",
                )

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and _VARIABLE.fullmatch(node.value):
            ours = _VARIABLES.get(node.value, "one of DURABLE_WORKFLOW_…")
            self._note(node.lineno, f"the variable {node.value} is not read: {ours} is")

    # Text

    def _segment(self, node: ast.stmt) -> bytes:
        begin = self._offset(node.lineno, node.col_offset)
        return self._source[begin : self._offset(node.end_lineno or 0, node.end_col_offset or 0)]

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _note(self, line: int, text: str) -> None:
        self._notes.add(MigrationNote(line, text))


def _advice(module: str) -> str:
    parts = module.split(".")
    known = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((_ADVICE[each] for each in known if each in _ADVICE), "has no place here")


def _plain(row: NameRow) -> str:
    """Return the note of a row without its links."""
    note = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row.note) or "other"
    return (
        note if row.place is None or row.parity is Parity.SAME else f"{row.place.replace(':', '.')}; {note}"
    )


def python_files(paths: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, RewrittenFile | SyntaxError]]:
    """Yield the rewritten form of each file that mentions the SDK, or why it cannot be read.

    Args:
        paths: names with contents.
    """
    for name, source in paths:
        if b"temporalio" not in source and b"TEMPORAL_" not in source:
            continue
        try:
            yield name, rewrite(source)
        except (SyntaxError, ValueError) as error:
            yield name, error if isinstance(error, SyntaxError) else SyntaxError(str(error))
