"""Whether the limits of a configuration agree: one scope has one limit, and whoever shares it is counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from penstock.core.admission import (
    EVERYWHERE,
    KINDS,
    Field,
    cluster_scope,
    group_scope,
    namespace_scope,
)
from penstock.settings.declared import DeclaredLimits, Part, Said
from penstock.settings.override_keys import OverrideKey, parse_key
from penstock.settings.told import Told, path_of, shown

ANY = "\0"
"""Stands for a namespace or a queue that no key names; nothing can be called so."""

Line = tuple[str, str]
"""A namespace and a queue."""

_SHARED_BY_NAMESPACE = (Field.NAMESPACE_LEASES, Field.NAMESPACE_DISPATCHES)


@dataclass(frozen=True, slots=True)
class _Question:
    """One kind of task in what was declared, and what could not be read of it."""

    limits: DeclaredLimits
    kind: str
    spoilt: Collection[OverrideKey]
    unread: Collection[Field]
    told: Told

    def said(self, what: Field, line: Line) -> Said | None:
        return self.limits.of_line(what, *line, self.kind)

    def lines(self, *fields: Field) -> list[Line]:
        """Lines that stand for all there can be, as far as these fields differ among them."""
        return list(_lines(self._keys(fields)))

    def _keys(self, fields: Collection[Field]) -> Iterator[OverrideKey]:
        for key, kind, what in self.limits.lines:
            if key is not None and kind == self.kind and what in fields:
                yield parse_key(key)

    def is_unsure(self, what: Field, line: Line) -> bool:
        """Whether something that could be for the line was misspelt; what it lacks is no fault of its own then."""
        return what in self.unread or any(key.covers(*line) for key in self.spoilt)


def check_agreement(
    limits: DeclaredLimits,
    spoilt: Collection[tuple[OverrideKey, str]],
    unread: Collection[tuple[str, Field]],
    told: Told,
) -> None:
    """Refuse what contradicts itself, and point at what can never bind or is closed.

    `spoilt` sections and `unread` fields have been told of already: that something lacks there is not told again.
    """
    for kind in KINDS:
        keys = [key for key, each in spoilt if each == kind]
        question = _Question(limits, kind, keys, [what for each, what in unread if each == kind], told)
        for what in _SHARED_BY_NAMESPACE:
            _one_limit_a_namespace(question, what)
        _group_limits_are_used(question, _one_limit_a_group(question))
        _queues_stay_below(question)
    _groups_are_named(limits, told)
    for said in limits.all():
        if said.value == 0:
            told.caution(said.source, said.path, "is 0, which closes: nothing that it counts is dispatched")


def _lines(keys: Iterable[OverrideKey]) -> dict[Line, None]:
    """Every queue that a key names, and each namespace with every queue that is named without one."""
    named = list(dict.fromkeys(keys))
    namespaces = dict.fromkeys([ANY, *(key.namespace for key in named if key.namespace is not None)])
    queues = dict.fromkeys([ANY, *(key.queue for key in named if key.namespace is None and key.queue)])
    exact = [(key.namespace, key.queue) for key in named if key.namespace is not None and key.queue]
    return dict.fromkeys([*exact, *((namespace, queue) for namespace in namespaces for queue in queues)])


def _one_limit_a_namespace(question: _Question, what: Field) -> None:
    """A limit of a namespace that only some of its queues go by would not count the others."""
    seen: set[str] = set()
    for line in question.lines(what):
        decider = question.limits.decider(what, *line, question.kind)
        said, others = question.said(what, line), question.said(what, (line[0], ANY))
        if decider is None or _value(said) == _value(others):
            continue
        if decider.path in seen or question.is_unsure(what, (line[0], ANY)):
            continue
        seen.add(decider.path)
        where = '"*"' if line[0] == ANY else shown(f"{line[0]}:*")
        rest = "no limit" if others is None else f"{others.value} ({others.path})"
        question.told.refuse(
            decider.source,
            decider.path,
            f"means {_value(said)} for one queue, and the other queues of the namespace go by {rest}:"
            f" a namespace has one limit, so say it under {where}",
        )


def _one_limit_a_group(question: _Question) -> set[str]:
    """Every queue of a group goes by the same limit, and by one at all. Returns the paths of those in use."""
    used: set[str] = set()
    first: dict[tuple[str, str], Said] = {}
    bare: list[tuple[Line, Said]] = []
    for line in question.lines(Field.GROUP, Field.GROUP_DISPATCHES):
        group, limit = question.said(Field.GROUP, line), question.said(Field.GROUP_DISPATCHES, line)
        if group is None:
            continue
        if limit is None:
            bare.append((line, group))
            continue
        used.add(limit.path)
        known = first.setdefault((line[0], str(group.value)), limit)
        if known.value != limit.value:
            _refuse_two_limits(question, str(group.value), known, limit)
    for line, group in bare:
        _refuse_no_limit(question, line, group, first.get((line[0], str(group.value))))
    return used


def _refuse_two_limits(question: _Question, group: str, one: Said, other: Said) -> None:
    one, other = sorted((one, other), key=lambda said: said.path)
    question.told.refuse(
        other.source,
        other.path,
        f"says {other.value}, and {one.path} says {one.value} for the same group {shown(group)}:"
        " a group has one limit for its workflow tasks and one for its activity tasks",
    )


def _refuse_no_limit(question: _Question, line: Line, group: Said, elsewhere: Said | None) -> None:
    name = str(group.value)
    is_unsure = question.is_unsure(Field.GROUP_DISPATCHES, line)
    if is_unsure or (elsewhere is None and _has_scope(question.limits, line[0], name)):
        return
    limit = Field.GROUP_DISPATCHES.value
    table = path_of(("admission", "groups", name))
    advice = f"say {limit} beside it, or give it limits in [{table}] of the file"
    if elsewhere is not None:
        advice = f"{elsewhere.path} says {elsewhere.value} for other queues of it, so say {limit} here too"
    question.told.refuse(group.source, group.path, f"{shown(name)} is a group without a limit here: {advice}")


def _has_scope(limits: DeclaredLimits, namespace: str, group: str) -> bool:
    """Whether the group has limits of its own; for a key of all namespaces it is enough to have them in some."""
    names = {name for name, part in limits.scopes if part is not Part.WINDOW}
    if namespace == ANY:
        return any(name.startswith("group:") and name.endswith(f"/{group}") for name in names)
    return not names.isdisjoint({group_scope(EVERYWHERE, group), group_scope(namespace, group)})


def _group_limits_are_used(question: _Question, used: Collection[str]) -> None:
    for (key, kind, what), said in question.limits.lines.items():
        if key is None or (kind, what) != (question.kind, Field.GROUP_DISPATCHES) or said.value is None:
            continue
        if said.path in used:
            continue
        if not any(parse_key(key).overlaps(each) for each in question.spoilt):
            question.told.refuse(
                said.source,
                said.path,
                f"a group limit without a group: no queue that goes by it has one; say {Field.GROUP} too",
            )


def _groups_are_named(limits: DeclaredLimits, told: Told) -> None:
    named = {said.value for (_, _, what), said in limits.lines.items() if what is Field.GROUP}
    for (name, part), said in limits.scopes.items():
        if name.startswith("group:") and part is not Part.WINDOW and name.partition("/")[2] not in named:
            told.caution(said.source, said.path, "counts nothing yet: no queue names this group")


_WIDER = (
    (Field.QUEUE_LEASES, Field.NAMESPACE_LEASES, Part.LEASES),
    (Field.QUEUE_DISPATCHES, Field.NAMESPACE_DISPATCHES, Part.DISPATCHES),
)


def _queues_stay_below(question: _Question) -> None:
    """A limit above one that counts more can never bind. Each key is asked for a queue that it is for."""
    for narrow, wide, part in _WIDER:
        keys = [parse_key(key) for key in question.limits.override_keys()]
        for line in [(ANY, ANY), *((key.namespace or ANY, key.queue or ANY) for key in keys)]:
            said = question.said(narrow, line)
            wider = [question.said(wide, line), *_scopes_of(question, line, part)]
            for other in (each for each in wider if each is not None):
                if said is not None and _number(said) > _number(other):
                    question.told.caution(
                        said.source,
                        said.path,
                        f"is {said.value} and can never bind: {other.path} allows {other.value} together with"
                        " other queues",
                    )


def _scopes_of(question: _Question, line: Line, part: Part) -> Iterator[Said | None]:
    kind = question.kind
    names = [cluster_scope(), cluster_scope(kind), namespace_scope(line[0])]
    group = question.said(Field.GROUP, line)
    if group is not None:
        name = str(group.value)
        names += [group_scope(EVERYWHERE, name), group_scope(line[0], name)]
        if part is Part.DISPATCHES:
            yield question.said(Field.GROUP_DISPATCHES, line)
    for each in names:
        yield question.limits.scopes.get((each, part))


def _value(said: Said | None) -> int | str:
    return "no limit" if said is None or said.value is None else said.value


def _number(said: Said) -> int:
    assert isinstance(said.value, int)
    return said.value
