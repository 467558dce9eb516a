"""Errors in workflow code that fail the workflow task, never the run."""

from __future__ import annotations


class WorkflowTaskError(Exception):
    """The task failed and is retried, with this code or with a fixed version; the run stays open."""


class NonDeterminismError(WorkflowTaskError):
    """The code issued a different command than its history has."""

    def __init__(self, sequence: int, recorded: str, asked: str, where: str = "") -> None:
        message = f"event {sequence} of the history is {recorded}, but the code issued {asked}"
        if where:
            message += f", {where}"
        super().__init__(
            message + ". Code that open runs depend on must not change its commands: put the change behind "
            'workflow.patched("…"), or let runs of the old code end first.'
        )
        self.sequence = sequence
        self.recorded = recorded
        self.asked = asked
        self.where = where


class DeterminismViolationError(WorkflowTaskError):
    """Workflow code used something non-deterministic."""


class TaskStuckError(WorkflowTaskError):
    """Workflow code did not yield in time: it computes or blocks where it should await."""


class ReadOnlyError(WorkflowTaskError):
    """A query or a validator tried to change the run."""
