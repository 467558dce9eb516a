"""Test support: a whole server in the test's process, with time skipping.

Names are imported lazily, so that the pytest plugin costs nothing unless it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sdk.activities.environment import ActivityEnvironment
    from penstock.testing.environment import WorkflowEnvironment
    from penstock.testing.errors import NothingWillHappenError, TooManySkipsError
    from penstock.testing.mocks import MockedActivity, mocked

__all__ = [
    "ActivityEnvironment",
    "MockedActivity",
    "NothingWillHappenError",
    "TooManySkipsError",
    "WorkflowEnvironment",
    "mocked",
]
_HOMES = {
    "ActivityEnvironment": "penstock.sdk.activities.environment",
    "MockedActivity": "penstock.testing.mocks",
    "NothingWillHappenError": "penstock.testing.errors",
    "TooManySkipsError": "penstock.testing.errors",
    "WorkflowEnvironment": "penstock.testing.environment",
    "mocked": "penstock.testing.mocks",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
