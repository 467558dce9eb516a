"""A cap on runs as operators see it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.core.limits.policies import Policy
from penstock.core.limits.run_caps import RunScope
from penstock.core.model import Run


class RunCapView(Struct, frozen=True):
    """The settings of a scope, and how they are used."""

    scope: RunScope
    policy: Policy
    """Settings that have not expired."""
    open: int
    """Runs that hold a place."""
    waiting: int
    """Runs that wait in its line. A run that several caps hold back waits in one line."""
    holders: Sequence[Run] = ()
    """The oldest runs that hold a place."""
