"""What can be wrong with workflow code; each of these fails the workflow task, never the run."""

from __future__ import annotations


class WorkflowTaskError(Exception):
    """The task is tried again later, with this code or with a better one; the run stays open."""


class NonDeterminismError(WorkflowTaskError):
    """The code asks for something else than its history says it asked for."""

    def __init__(self, sequence: int, recorded: str, asked: str, where: str = "") -> None:
        told = f"event {sequence} of the history is {recorded}, but the code asks for {asked}"
        if where:
            told += f", {where}"
        super().__init__(
            told + ". Code that open runs depend on must not change what it asks for: put the change behind "
            'workflow.patched("…"), or let runs of the old code end first.'
        )
        self.sequence = sequence
        self.recorded = recorded
        self.asked = asked
        self.where = where


class DeterminismViolationError(WorkflowTaskError):
    """Workflow code used something that differs from one replay to the next."""


class TaskStuckError(WorkflowTaskError):
    """Workflow code did not give way in time: it computes or blocks where it should await."""


class ReadOnlyError(WorkflowTaskError):
    """A query or a validator tried to change the run."""


class NotInWorkflowError(RuntimeError):
    """A function of `penstock.workflow` was called outside workflow code."""
