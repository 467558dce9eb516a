"""The declared limits in force for a queue, each with its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.limits.admission import (
    KINDS,
    Admission,
    LimitField,
    QueueLimits,
    ScopeRules,
    group_scope,
    namespace_scope,
    queue_scope,
)
from penstock.core.limits.policies import NO_POLICY
from penstock.core.limits.windows import Window
from penstock.settings.declared_limits import LimitEntry, ScopeField
from penstock.settings.policies import Settings


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """A limit of a queue, or of a scope that counts it. `window` is None for limits that are not rates."""

    kind: str
    scope: str
    limit: str
    value: int
    window: Window | None
    entry: LimitEntry | None


def limits_of_queue(settings: Settings, namespace: str, queue: str) -> list[QueueLimit]:
    """The limits in force until an operator changes them, from the function that dispatch uses."""
    admission = Admission(declaration=settings.admission)
    found: list[QueueLimit] = []
    for kind in KINDS:
        limits = admission.of(namespace, queue, kind, NO_POLICY, now_ms=0)
        found += _of_line(settings, limits, namespace, queue, kind)
    return found


def _of_line(
    settings: Settings, limits: QueueLimits, namespace: str, queue: str, kind: str
) -> Iterator[QueueLimit]:
    def entry(what: LimitField) -> LimitEntry | None:
        return settings.declared.of_line(what, namespace, queue, kind)

    own, shared = queue_scope(namespace, queue, kind), namespace_scope(namespace, kind)
    said_of = {
        (own, ScopeField.LEASES): entry(LimitField.QUEUE_LEASES),
        (own, ScopeField.DISPATCHES): entry(LimitField.QUEUE_DISPATCHES),
        (shared, ScopeField.LEASES): entry(LimitField.NAMESPACE_LEASES),
        (shared, ScopeField.DISPATCHES): entry(LimitField.NAMESPACE_DISPATCHES),
    }
    if limits.group is not None:
        said_of[group_scope(namespace, limits.group, kind), ScopeField.DISPATCHES] = entry(
            LimitField.GROUP_DISPATCHES
        )
    line = ScopeRules(own, limits.leases, limits.dispatches, window=limits.window)
    for scope in (line, *limits.scopes):
        for part, value in _values(scope):
            found = said_of.get((scope.name, part)) or settings.declared.scopes.get((scope.name, part))
            window = None if part is ScopeField.LEASES else scope.window
            yield QueueLimit(kind, scope.name, part.value, value, window, found)


def _values(scope: ScopeRules) -> Iterator[tuple[ScopeField, int]]:
    for part, value in (
        (ScopeField.LEASES, scope.leases),
        (ScopeField.DISPATCHES, scope.dispatches),
        (ScopeField.COST, scope.cost),
    ):
        if value is not None:
            yield part, value
