"""How code ends a run to go on in a new one."""

from __future__ import annotations

from typing import Any


class ContinueAsNewError(BaseException):
    """Raised by `workflow.continue_as_new`; let it pass. No `except Exception` holds it."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__("continue as new")
        self.body = body
