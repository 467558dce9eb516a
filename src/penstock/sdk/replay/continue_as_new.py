"""The exception that ends a run to continue it as a new one."""

from __future__ import annotations

from typing import Any


class ContinueAsNewError(BaseException):
    """Raised by `workflow.continue_as_new`; do not catch it. It is not an `Exception`."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__("continue as new")
        self.body = body
