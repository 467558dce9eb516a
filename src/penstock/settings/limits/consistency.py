"""Consistency of declared limits: one limit per scope, which counts every queue that shares it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from penstock.core.limits.admission import (
    EVERYWHERE,
    KINDS,
    LimitField,
    cluster_scope,
    group_scope,
    namespace_scope,
)
from penstock.schema.paths import shown_path
from penstock.schema.problems import shown
from penstock.settings.declared_limits import DeclaredLimits, LimitEntry, ScopeField
from penstock.settings.diagnostics import Diagnostics
from penstock.settings.limits.override_keys import OverrideKey, parse_key

ANY = "\0"
"""Placeholder for a namespace or queue that no key names; no real name can equal it."""

QueueName = tuple[str, str]
"""A namespace and a queue."""

_SHARED_BY_NAMESPACE = (LimitField.NAMESPACE_LEASES, LimitField.NAMESPACE_DISPATCHES)


@dataclass(frozen=True, slots=True)
class _KindLimits:
    """The limits of one kind of task, and the parts of them that could not be read."""

    limits: DeclaredLimits
    kind: str
    invalid_names: Collection[OverrideKey]
    unread: Collection[LimitField]
    diagnostics: Diagnostics

    def entry(self, what: LimitField, line: QueueName) -> LimitEntry | None:
        return self.limits.of_line(what, *line, self.kind)

    def lines(self, *fields: LimitField) -> list[QueueName]:
        """Representative queues: every combination for which these fields can differ."""
        return list(_lines(self._keys(fields)))

    def _keys(self, fields: Collection[LimitField]) -> Iterator[OverrideKey]:
        for key, kind, what in self.limits.lines:
            if key is not None and kind == self.kind and what in fields:
                yield parse_key(key)

    def is_unsure(self, what: LimitField, line: QueueName) -> bool:
        """Whether an unreadable entry could apply to the queue, so that a missing value is not reported again."""
        return what in self.unread or any(key.covers(*line) for key in self.invalid_names)


def check_consistency(
    limits: DeclaredLimits,
    invalid_names: Collection[tuple[OverrideKey, str]],
    unread: Collection[tuple[str, LimitField]],
    diagnostics: Diagnostics,
) -> None:
    """Report contradictions as problems, and limits that never bind or are 0 as warnings.

    `invalid_names` sections and `unread` fields were reported already; what is missing there is not reported again.
    """
    for kind in KINDS:
        keys = [key for key, each in invalid_names if each == kind]
        kind_limits = _KindLimits(
            limits, kind, keys, [what for each, what in unread if each == kind], diagnostics
        )
        for what in _SHARED_BY_NAMESPACE:
            _one_limit_a_namespace(kind_limits, what)
        _group_limits_are_used(kind_limits, _one_limit_a_group(kind_limits))
        _queues_stay_below(kind_limits)
    _groups_are_named(limits, diagnostics)
    for entry in limits.all():
        if entry.value == 0:
            diagnostics.caution(entry, "is 0, which closes: nothing that it counts is dispatched")


def _lines(keys: Iterable[OverrideKey]) -> dict[QueueName, None]:
    """Every queue that a key names, and each namespace with every queue that is named without one."""
    named = list(dict.fromkeys(keys))
    namespaces = dict.fromkeys([ANY, *(key.namespace for key in named if key.namespace is not None)])
    queues = dict.fromkeys([ANY, *(key.queue for key in named if key.namespace is None and key.queue)])
    exact = [(key.namespace, key.queue) for key in named if key.namespace is not None and key.queue]
    return dict.fromkeys([*exact, *((namespace, queue) for namespace in namespaces for queue in queues)])


def _one_limit_a_namespace(kind_limits: _KindLimits, what: LimitField) -> None:
    """A limit of a namespace that only some of its queues go by would not count the others."""
    seen: set[str] = set()
    for line in kind_limits.lines(what):
        decider = kind_limits.limits.decider(what, *line, kind_limits.kind)
        entry, others = kind_limits.entry(what, line), kind_limits.entry(what, (line[0], ANY))
        if decider is None or _value(entry) == _value(others):
            continue
        if decider.path in seen or kind_limits.is_unsure(what, (line[0], ANY)):
            continue
        seen.add(decider.path)
        where = '"*"' if line[0] == ANY else shown(f"{line[0]}:*")
        rest = "no limit" if others is None else f"{others.value} ({others.path})"
        kind_limits.diagnostics.refuse(
            decider,
            f"means {_value(entry)} for one queue, and the other queues of the namespace go by {rest}:"
            f" a namespace has one limit, so say it under {where}",
        )


def _one_limit_a_group(kind_limits: _KindLimits) -> set[str]:
    """Check that all queues of a group have the same limit, and have one. Returns the paths of the limits in use."""
    used: set[str] = set()
    first: dict[tuple[str, str], LimitEntry] = {}
    bare: list[tuple[QueueName, LimitEntry]] = []
    for line in kind_limits.lines(LimitField.GROUP, LimitField.GROUP_DISPATCHES):
        group, limit = (
            kind_limits.entry(LimitField.GROUP, line),
            kind_limits.entry(LimitField.GROUP_DISPATCHES, line),
        )
        if group is None:
            continue
        if limit is None:
            bare.append((line, group))
            continue
        used.add(limit.path)
        known = first.setdefault((line[0], str(group.value)), limit)
        if known.value != limit.value:
            _refuse_two_limits(kind_limits, str(group.value), known, limit)
    for line, group in bare:
        _refuse_no_limit(kind_limits, line, group, first.get((line[0], str(group.value))))
    return used


def _refuse_two_limits(kind_limits: _KindLimits, group: str, one: LimitEntry, other: LimitEntry) -> None:
    one, other = sorted((one, other), key=lambda entry: entry.path)
    kind_limits.diagnostics.refuse(
        other,
        f"says {other.value}, and {one.path} says {one.value} for the same group {shown(group)}:"
        " a group has one limit for its workflow tasks and one for its activity tasks",
    )


def _refuse_no_limit(
    kind_limits: _KindLimits, line: QueueName, group: LimitEntry, elsewhere: LimitEntry | None
) -> None:
    name = str(group.value)
    is_unsure = kind_limits.is_unsure(LimitField.GROUP_DISPATCHES, line)
    if is_unsure or (elsewhere is None and _has_scope(kind_limits.limits, line[0], name)):
        return
    limit = LimitField.GROUP_DISPATCHES.value
    table = shown_path(("admission", "groups", name))
    advice = f"say {limit} beside it, or give it limits in [{table}] of the file"
    if elsewhere is not None:
        advice = f"{elsewhere.path} says {elsewhere.value} for other queues of it, so say {limit} here too"
    kind_limits.diagnostics.refuse(group, f"{shown(name)} is a group without a limit here: {advice}")


def _has_scope(limits: DeclaredLimits, namespace: str, group: str) -> bool:
    """Whether the group has limits of its own; for a key of all namespaces it is enough to have them in some."""
    names = {name for name, part in limits.scopes if part is not ScopeField.WINDOW}
    if namespace == ANY:
        return any(name.startswith("group:") and name.endswith(f"/{group}") for name in names)
    return not names.isdisjoint({group_scope(EVERYWHERE, group), group_scope(namespace, group)})


def _group_limits_are_used(kind_limits: _KindLimits, used: Collection[str]) -> None:
    for (key, kind, what), entry in kind_limits.limits.lines.items():
        if (
            key is None
            or (kind, what) != (kind_limits.kind, LimitField.GROUP_DISPATCHES)
            or entry.value is None
        ):
            continue
        if entry.path in used:
            continue
        if not any(parse_key(key).overlaps(each) for each in kind_limits.invalid_names):
            kind_limits.diagnostics.refuse(
                entry,
                f"a group limit without a group: no queue that goes by it has one; say {LimitField.GROUP} too",
            )


def _groups_are_named(limits: DeclaredLimits, diagnostics: Diagnostics) -> None:
    named = {entry.value for (_, _, what), entry in limits.lines.items() if what is LimitField.GROUP}
    for (name, part), entry in limits.scopes.items():
        if (
            name.startswith("group:")
            and part is not ScopeField.WINDOW
            and name.partition("/")[2] not in named
        ):
            diagnostics.caution(entry, "counts nothing yet: no queue names this group")


_WIDER = (
    (LimitField.QUEUE_LEASES, LimitField.NAMESPACE_LEASES, ScopeField.LEASES),
    (LimitField.QUEUE_DISPATCHES, LimitField.NAMESPACE_DISPATCHES, ScopeField.DISPATCHES),
)


def _queues_stay_below(kind_limits: _KindLimits) -> None:
    """Warn about limits that a wider limit makes ineffective, for one queue of each key."""
    for narrow, wide, part in _WIDER:
        keys = [parse_key(key) for key in kind_limits.limits.override_keys()]
        for line in [(ANY, ANY), *((key.namespace or ANY, key.queue or ANY) for key in keys)]:
            entry = kind_limits.entry(narrow, line)
            wider = [kind_limits.entry(wide, line), *_scopes_of(kind_limits, line, part)]
            for other in (each for each in wider if each is not None):
                if entry is not None and _number(entry) > _number(other):
                    kind_limits.diagnostics.caution(
                        entry,
                        f"is {entry.value} and can never bind: {other.path} allows {other.value} together with"
                        " other queues",
                    )


def _scopes_of(kind_limits: _KindLimits, line: QueueName, part: ScopeField) -> Iterator[LimitEntry | None]:
    kind = kind_limits.kind
    names = [cluster_scope(), cluster_scope(kind), namespace_scope(line[0])]
    group = kind_limits.entry(LimitField.GROUP, line)
    if group is not None:
        name = str(group.value)
        names += [group_scope(EVERYWHERE, name), group_scope(line[0], name)]
        if part is ScopeField.DISPATCHES:
            yield kind_limits.entry(LimitField.GROUP_DISPATCHES, line)
    for each in names:
        yield kind_limits.limits.scopes.get((each, part))


def _value(entry: LimitEntry | None) -> int | str:
    return "no limit" if entry is None or entry.value is None else entry.value


def _number(entry: LimitEntry) -> int:
    assert isinstance(entry.value, int)
    return entry.value
