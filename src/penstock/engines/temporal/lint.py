"""Looks for workflow code that cannot run on Temporal, before a worker takes any work.

The source of each workflow class's module is parsed. Found are options that Temporal has nothing for, and functions of
`temporalio.workflow` inside of the class: they work there and fail on our engine, so the class would run on one only.
What the parser cannot see, such as options in a variable, is refused at the call.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.sdk.failures import SdkError
from penstock.sdk.workflows.definitions import WorkflowDefinition

_ACTIVITY = ("cost_estimate", "good_until", "start_delay", "build_id")
_CHILD = ("business_key", "build_id", "start_delay")
_LACKS = {
    "start_activity": _ACTIVITY,
    "execute_activity": _ACTIVITY,
    "start_activity_method": _ACTIVITY,
    "execute_activity_method": _ACTIVITY,
    "start_child_workflow": _CHILD,
    "execute_child_workflow": _CHILD,
    "continue_as_new": ("priority",),
}
"""Options that Temporal has nothing for, by function."""
_MIXED = "temporalio.workflow"


@dataclass(frozen=True, slots=True)
class CodeFinding:
    """Code that cannot run on Temporal."""

    workflow: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.workflow} ({self.place}): {self.message}"


class WorkflowCodeRefused(SdkError):
    """Workflow code uses what Temporal lacks, or mixes the two SDKs. `findings` has each place."""

    def __init__(self, findings: Sequence[CodeFinding]) -> None:
        lines = "".join(f"\n  - {each}" for each in findings)
        super().__init__(f"These workflows cannot run on Temporal:{lines}")
        self.findings = tuple(findings)


def check_code(definitions: Sequence[WorkflowDefinition]) -> None:
    """Raise `WorkflowCodeRefused` if any workflow cannot run on Temporal."""
    findings = [found for each in definitions for found in look_at(each)]
    if findings:
        raise WorkflowCodeRefused(findings)


def look_at(definition: WorkflowDefinition) -> list[CodeFinding]:
    """Return what is wrong with one workflow. Source that cannot be read has no findings."""
    cls = definition.cls
    module = sys.modules.get(cls.__module__)
    try:
        lines, first = inspect.getsourcelines(cls)
        whole = ast.parse(inspect.getsource(module)) if module is not None else ast.Module([], [])
        file = inspect.getsourcefile(cls) or cls.__module__
    except (OSError, TypeError, SyntaxError):
        return []
    names = set(_names_of_temporalio(whole))
    body = [
        node
        for node in ast.walk(whole)
        if isinstance(node, ast.expr) and first <= node.lineno < first + len(lines)
    ]
    return [
        CodeFinding(cls.__qualname__, f"{file}:{line}", message)
        for line, message in sorted({*_mixed(body, names), *_lacking(body)})
    ]


def _names_of_temporalio(module: ast.Module) -> Iterator[str]:
    """Yield the names under which a module knows `temporalio.workflow`, or functions of it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name == _MIXED:
                    yield each.asname or "temporalio"
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                if node.module == _MIXED or f"{node.module}.{each.name}" == _MIXED:
                    yield each.asname or each.name


def _mixed(body: Sequence[ast.expr], names: set[str]) -> Iterator[tuple[int, str]]:
    for node in body:
        if isinstance(node, ast.Name) and node.id in names:
            yield (
                node.lineno,
                f"{node.id} is of temporalio: use penstock.workflow, which runs on both engines",
            )


def _lacking(body: Sequence[ast.expr]) -> Iterator[tuple[int, str]]:
    for node in body:
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "message_stream":
            yield node.lineno, "message streams are not available on Temporal: use signals or updates"
        for keyword in node.keywords:
            if keyword.arg in _LACKS.get(called, ()) and not _is_none(keyword.value):
                yield keyword.value.lineno, f"{called}({keyword.arg}=…) is not available on Temporal"


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
