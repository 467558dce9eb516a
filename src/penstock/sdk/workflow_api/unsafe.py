"""Functions that can break determinism, as `workflow.unsafe`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.sdk.replay.determinism_guard import unguarded
from penstock.sdk.replay.errors import ReadOnlyError
from penstock.sdk.workflow_api.current_run import in_workflow
from penstock.sdk.workflow_port.port import current


class unsafe:  # noqa: N801 - reads as a word: workflow.unsafe.is_replaying()
    """Functions that workflow code rarely needs and that can break determinism."""

    @staticmethod
    def in_sandbox() -> bool:
        """Whether the calling code runs in a workflow. For code shared with other SDKs."""
        return in_workflow()

    @staticmethod
    def is_replaying() -> bool:
        """Whether the code is being replayed. Never make decisions by it."""
        return current().is_replaying

    @staticmethod
    def is_read_only() -> bool:
        """Whether the code may only read: in a query or a validator."""
        try:
            current().check_writable("a change")
        except ReadOnlyError:
            return True
        return False

    @staticmethod
    @contextmanager
    def imports_passed_through() -> Iterator[None]:
        """Does nothing: imports are always passed through. For code shared with other SDKs."""
        yield

    @staticmethod
    @contextmanager
    def sandbox_unrestricted() -> Iterator[None]:
        """Disable the determinism guard for a block."""
        with unguarded():
            yield
