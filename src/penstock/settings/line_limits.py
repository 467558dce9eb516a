"""Which declared limits hold for a queue, each with where it was said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.admission import (
    KINDS,
    Admission,
    Field,
    LineLimits,
    ScopeRules,
    group_scope,
    namespace_scope,
    queue_scope,
)
from penstock.core.policies import NO_POLICY
from penstock.core.windows import Window
from penstock.settings.declared import Part, Said
from penstock.settings.policies import Settings


@dataclass(frozen=True, slots=True)
class LineLimit:
    """A limit of a line, or of a scope that counts it. `window` is None for what is not counted by time."""

    kind: str
    scope: str
    limit: str
    value: int
    window: Window | None
    said: Said | None


def limits_of_queue(settings: Settings, namespace: str, queue: str) -> list[LineLimit]:
    """As long as no operator says otherwise: asked of the same function that dispatch asks."""
    admission = Admission(declaration=settings.admission)
    found: list[LineLimit] = []
    for kind in KINDS:
        limits = admission.of(namespace, queue, kind, NO_POLICY, now_ms=0)
        found += _of_line(settings, limits, namespace, queue, kind)
    return found


def _of_line(
    settings: Settings, limits: LineLimits, namespace: str, queue: str, kind: str
) -> Iterator[LineLimit]:
    def said(what: Field) -> Said | None:
        return settings.declared.of_line(what, namespace, queue, kind)

    own, shared = queue_scope(namespace, queue, kind), namespace_scope(namespace, kind)
    said_of = {
        (own, Part.LEASES): said(Field.QUEUE_LEASES),
        (own, Part.DISPATCHES): said(Field.QUEUE_DISPATCHES),
        (shared, Part.LEASES): said(Field.NAMESPACE_LEASES),
        (shared, Part.DISPATCHES): said(Field.NAMESPACE_DISPATCHES),
    }
    if limits.group is not None:
        said_of[group_scope(namespace, limits.group, kind), Part.DISPATCHES] = said(Field.GROUP_DISPATCHES)
    line = ScopeRules(own, limits.leases, limits.dispatches, window=limits.window)
    for scope in (line, *limits.scopes):
        for part, value in _values(scope):
            found = said_of.get((scope.name, part)) or settings.declared.scopes.get((scope.name, part))
            window = None if part is Part.LEASES else scope.window
            yield LineLimit(kind, scope.name, part.value, value, window, found)


def _values(scope: ScopeRules) -> Iterator[tuple[Part, int]]:
    for part, value in (
        (Part.LEASES, scope.leases),
        (Part.DISPATCHES, scope.dispatches),
        (Part.COST, scope.cost),
    ):
        if value is not None:
            yield part, value
