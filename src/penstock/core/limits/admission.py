"""The effective limits of a queue: declared in configurations, and set by operators at run time.

Limits belong to *scopes*: the queue itself, its namespace, a budget group shared by several queues, and the cluster.
A scope covers one kind of task or both. A value set by an operator takes precedence over the declared one, limit by
limit. The declaration is one document for all servers.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits.policies import PAUSED, LimitSetting, Policy
from penstock.core.limits.windows import Window

LEASES_MAX = 1_000_000
GROUP_NAME_MAX = 128
EVERYWHERE = "*"
"""All namespaces, in the name of a budget group that they share."""


class LimitField(StrEnum):
    """A limit that can be declared for a kind of task, by its public name."""

    QUEUE_LEASES = "max_active_leases_per_queue"
    NAMESPACE_LEASES = "max_active_leases_per_namespace"
    QUEUE_DISPATCHES = "max_dispatches_per_minute"
    NAMESPACE_DISPATCHES = "max_dispatches_per_minute_per_namespace"
    GROUP = "dispatch_budget_group"
    GROUP_DISPATCHES = "max_dispatches_per_minute_per_budget_group"


KINDS = ("workflow", "activity")
Section = Mapping[LimitField, int | str | None]
"""Limits of one kind of task. A null means the default of the kind, overriding wider keys."""


class DeclaredScope(Struct, frozen=True):
    """Limits declared for a scope as a whole: a budget group, or the cluster."""

    leases: int | None = None
    dispatches: int | None = None
    cost: int | None = None
    """Units of cost per minute, in the unit that tasks estimate (tokens, cents)."""
    window: Window | None = None


class Declaration(Struct, frozen=True):
    """All limits of a configuration. Kinds are named `workflow` and `activity`."""

    defaults: Mapping[str, Section] = field(default_factory=dict)
    """By kind."""
    overrides: Mapping[str, Mapping[str, Section]] = field(default_factory=dict)
    """By `namespace:queue`, `namespace:*`, `queue` or `*`, then by kind."""
    scopes: Mapping[str, DeclaredScope] = field(default_factory=dict)
    """By the name of the scope: budget groups and the cluster."""
    window: Window = Window.MINUTE
    rate_max_micro: int | None = None
    """The highest rate of activity tasks for any queue, per million seconds."""
    version: int = 0
    """A declaration with a lower version than the stored one does not replace it."""

    @property
    def is_empty(self) -> bool:
        limits = any(self.defaults.values()) or self.overrides or self.scopes
        return not limits and self.rate_max_micro is None


NOTHING_DECLARED = Declaration()


class DeclaredValue(Struct, frozen=True):
    """A declared value, and where it comes from."""

    value: int | str
    source: str


def override_keys(namespace: str, queue: str) -> tuple[str, ...]:
    """The override keys that apply to a queue, in order of precedence.

    The text before the first colon of a key is a namespace, so a queue with a colon in its name needs a key with its
    namespace.
    """
    alone = () if ":" in queue else (queue,)
    return (f"{namespace}:{queue}", f"{namespace}:*", *alone, "*")


def declared(
    declaration: Declaration, field_: LimitField, namespace: str, queue: str, kind: str
) -> DeclaredValue | None:
    """The declared value for a queue: from the first override key with the field, else the default of its kind."""
    for key in override_keys(namespace, queue):
        section = declaration.overrides.get(key, {}).get(kind, {})
        value = section.get(field_)
        if value is not None:
            return DeclaredValue(value, "server.admission.queue_overrides")
        if field_ in section:
            break
    value = declaration.defaults.get(kind, {}).get(field_)
    return None if value is None else DeclaredValue(value, default_source(field_, kind))


def default_source(field_: LimitField, kind: str) -> str:
    return f"server.admission.{kind}_tasks.{field_}"


# The names of scopes.


def cluster_scope(kind: str | None = None) -> str:
    return _of_kind("cluster", kind)


def namespace_scope(namespace: str, kind: str | None = None) -> str:
    return _of_kind(f"namespace:{namespace}", kind)


def group_scope(namespace: str, group: str, kind: str | None = None) -> str:
    return _of_kind(f"group:{namespace}/{group}", kind)


def namespace_of(scope: str) -> str | None:
    """The namespace of a scope; None: all namespaces."""
    kind, _, rest = scope.partition(":")
    namespace = rest.partition("/")[0]
    return None if kind.startswith("cluster") or namespace == EVERYWHERE else namespace


def queue_scope(namespace: str, queue: str, kind: str) -> str:
    """The name of a queue as a scope. Queues have no row in the table of scopes."""
    return f"queue:{namespace}/{queue}/{kind}"


def queue_of_scope(scope: str) -> tuple[str, str, str] | None:
    """The namespace, name and kind in the name of a queue's scope; None for other scopes."""
    what, _, rest = scope.partition(":")
    if what != "queue":
        return None
    namespace, _, rest = rest.partition("/")
    queue, _, kind = rest.rpartition("/")
    return namespace, queue, kind


def _of_kind(name: str, kind: str | None) -> str:
    return name if kind is None else f"{name}/{kind}"


class ScopeRules(Struct, frozen=True):
    """The limits of a scope for one queue, with their sources. Zero is closed."""

    name: str
    leases: int | None = None
    dispatches: int | None = None
    cost: int | None = None
    window: Window = Window.MINUTE
    paused: bool = False
    leases_source: str | None = None
    dispatches_source: str | None = None
    version: int = 0
    """The version of the operators' settings; 0: none yet."""

    @property
    def group(self) -> str | None:
        """The budget group of this scope, if it is one."""
        return self.name.split("/")[1] if self.name.startswith("group:") else None

    @property
    def is_limited(self) -> bool:
        return self.paused or any(each is not None for each in (self.leases, self.dispatches, self.cost))


class QueueLimits(Struct, frozen=True):
    """All limits of one queue, except those that exist only as its own settings."""

    leases: int | None = None
    leases_source: str | None = None
    dispatches: int | None = None
    dispatches_source: str | None = None
    window: Window = Window.MINUTE
    group: str | None = None
    scopes: tuple[ScopeRules, ...] = ()
    """The scopes that count its leases and dispatches."""
    changes_at_ms: int | None = None
    """When the next setting expires, which may change them."""
    rate_max_micro: int | None = None
    """The highest rate allowed, per million seconds."""


class ScopeRow(Struct, frozen=True):
    """A scope with settings by operators, or with a declared limit."""

    scope_id: int
    name: str
    policy: Policy


class Admission(Struct, frozen=True, dict=True):
    """A version of all limits: the declaration and the operators' settings. Immutable; a change makes a new one."""

    version: int = 0
    declaration: Declaration = NOTHING_DECLARED
    rows: Sequence[ScopeRow] = ()
    declared_by: str | None = None
    declared_at_ms: int | None = None

    @cached_property
    def _by_name(self) -> Mapping[str, ScopeRow]:
        return {row.name: row for row in self.rows}

    @cached_property
    def _known(self) -> dict[tuple[str, str, str], tuple[Policy, QueueLimits]]:
        """Cache by queue: the limits computed last, and the settings they were computed from."""
        return {}

    @cached_property
    def _ends(self) -> Sequence[int]:
        """When settings of scopes expire, in order."""
        return sorted(
            each.ends_at_ms
            for row in self.rows
            for each in row.policy.settings.values()
            if each.ends_at_ms is not None
        )

    def row(self, name: str) -> ScopeRow | None:
        return self._by_name.get(name)

    @cached_property
    def is_empty(self) -> bool:
        return not self.rows and self.declaration.is_empty

    def of(self, namespace: str, queue: str, kind: str, policy: Policy, now_ms: int) -> QueueLimits:
        """The limits of a queue with these settings of its own; cached until a setting expires."""
        if self.is_empty and not policy.settings:
            return NO_LIMITS
        changes_at_ms = self._changes_at_ms(policy, now_ms)
        if changes_at_ms is not None:
            return replace(self._of(namespace, queue, kind, policy, now_ms), changes_at_ms=changes_at_ms)
        known = self._known.get((namespace, queue, kind))
        if known is None or known[0] != policy:
            known = policy, self._of(namespace, queue, kind, policy, now_ms)
            self._known[namespace, queue, kind] = known
        return known[1]

    def _changes_at_ms(self, policy: Policy, now_ms: int) -> int | None:
        """When the next setting of the queue or of any scope expires; None: none does."""
        if not self._ends and policy.next_end_ms is None:
            return None
        ends = [*self._ends[bisect.bisect_right(self._ends, now_ms) :][:1]]
        own = [each.ends_at_ms for each in policy.settings.values() if each.ends_at_ms is not None]
        return min([*ends, *(at_ms for at_ms in own if at_ms > now_ms)], default=None)

    def _of(self, namespace: str, queue: str, kind: str, policy: Policy, now_ms: int) -> QueueLimits:
        policy = policy.at(now_ms)

        def declared_for(field_: LimitField) -> DeclaredValue | None:
            return declared(self.declaration, field_, namespace, queue, kind)

        leases = _number(
            policy, LimitSetting.LEASE_CAP, declared_for(LimitField.QUEUE_LEASES), "task_queue.limits"
        )
        dispatches = _number(
            policy, LimitSetting.DISPATCHES, declared_for(LimitField.QUEUE_DISPATCHES), "task_queue.limits"
        )
        group = policy.word(LimitSetting.GROUP) or _text(declared_for(LimitField.GROUP)) or None
        return QueueLimits(
            leases=leases[0],
            leases_source=leases[1] or default_source(LimitField.QUEUE_LEASES, kind),
            dispatches=dispatches[0],
            dispatches_source=dispatches[1],
            window=_window(policy, self.declaration.window),
            group=group,
            scopes=tuple(self._scopes(namespace, kind, group, declared_for, now_ms)),
            rate_max_micro=self.declaration.rate_max_micro if kind == _RATED else None,
        )

    def _scopes(
        self, namespace: str, kind: str, group: str | None, declared_for: Any, now_ms: int
    ) -> Iterator[ScopeRules]:
        own: dict[str, tuple[DeclaredValue | None, DeclaredValue | None]] = {
            namespace_scope(namespace, kind): (
                declared_for(LimitField.NAMESPACE_LEASES),
                declared_for(LimitField.NAMESPACE_DISPATCHES),
            )
        }
        names = [cluster_scope(), cluster_scope(kind), namespace_scope(namespace), *own]
        if group is not None:
            limit = declared_for(LimitField.GROUP_DISPATCHES) or self._declared_of(namespace, group, kind)
            own[group_scope(namespace, group, kind)] = (None, limit)
            names += [group_scope(EVERYWHERE, group), group_scope(namespace, group)]
            names.append(group_scope(namespace, group, kind))
        for name in sorted(names):
            rules = self._scope(name, own.get(name, (None, None)), now_ms)
            closable = rules.group is not None and name in self._by_name
            if rules.is_limited or closable or (name in own and self._limits_others(rules, namespace, kind)):
                yield rules

    def _declared_of(self, namespace: str, group: str, kind: str) -> DeclaredValue | None:
        """The lowest limit declared for a group by the queues declared to be in it.

        It also applies to a queue that an operator put into the group.
        """
        for key, sections in self.declaration.overrides.items():
            section = sections.get(kind, {})
            here = ":" not in key or key.startswith(f"{namespace}:")
            limit = section.get(LimitField.GROUP_DISPATCHES)
            if here and section.get(LimitField.GROUP) == group and limit is not None:
                return DeclaredValue(limit, "server.admission.queue_overrides")
        return None

    def _limits_others(self, rules: ScopeRules, namespace: str, kind: str) -> bool:
        """Whether a scope may be limited for other queues: then it must count this one, too."""
        fields = _OF_NAMESPACE if rules.group is None else _OF_GROUP
        return any(
            sections.get(kind, {}).get(field_) is not None
            for key, sections in self.declaration.overrides.items()
            if ":" not in key or key.startswith(f"{namespace}:")
            for field_ in fields
        )

    def scope(self, name: str, now_ms: int) -> ScopeRules:
        """The rules of a scope, without limits declared for single queues."""
        return self._scope(name, (None, None), now_ms)

    def _scope(
        self, name: str, own: tuple[DeclaredValue | None, DeclaredValue | None], now_ms: int
    ) -> ScopeRules:
        row = self._by_name.get(name)
        policy = Policy() if row is None else row.policy.at(now_ms)
        whole = self.declaration.scopes.get(name, DeclaredScope())
        declared_leases = own[0] or _declared(whole.leases)
        declared_dispatches = own[1] or _declared(whole.dispatches)
        source = f"{name.partition(':')[0].partition('/')[0]}.limits"
        leases = _number(policy, LimitSetting.LEASE_CAP, declared_leases, source)
        dispatches = _number(policy, LimitSetting.DISPATCHES, declared_dispatches, source)
        cost = policy.number(LimitSetting.COST)
        return ScopeRules(
            name=name,
            leases=leases[0],
            dispatches=dispatches[0],
            cost=whole.cost if cost is None else cost,
            window=_window(policy, whole.window or self.declaration.window),
            paused=policy.word(LimitSetting.PAUSED) == PAUSED,
            leases_source=leases[1],
            dispatches_source=dispatches[1],
            version=policy.version,
        )


_OF_NAMESPACE = (LimitField.NAMESPACE_LEASES, LimitField.NAMESPACE_DISPATCHES)
_OF_GROUP = (LimitField.GROUP_DISPATCHES,)
_RATED = "activity"
"""Workflow tasks have no rate: a running workflow must be able to progress."""
NO_LIMITS = QueueLimits()
NO_ADMISSION = Admission()


def _declared(value: int | None) -> DeclaredValue | None:
    return None if value is None else DeclaredValue(value, "server.admission.scopes")


def _number(
    policy: Policy, setting_name: LimitSetting, otherwise: DeclaredValue | None, source: str
) -> tuple[int | None, str | None]:
    set_ = policy.number(setting_name)
    if set_ is not None:
        return set_, source
    if otherwise is None or not isinstance(otherwise.value, int):
        return None, None
    return otherwise.value, otherwise.source


def _text(value: DeclaredValue | None) -> str | None:
    return value.value if value is not None and isinstance(value.value, str) else None


def _window(policy: Policy, otherwise: Window) -> Window:
    word = policy.word(LimitSetting.WINDOW)
    return otherwise if word is None else Window(word)
