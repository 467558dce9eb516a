"""People who do something in tests of what is recorded by name."""

from __future__ import annotations

from penstock.core.permissions import Principal, Role


def operator(name: str) -> Principal:
    """An operator with this name."""
    return Principal(name, Role.OPERATOR, frozenset({Role.OPERATOR}))


def admin(name: str) -> Principal:
    """An admin with this name."""
    return Principal(name, Role.ADMIN, frozenset({Role.ADMIN}))
