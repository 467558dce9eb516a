"""Limits as operators see them: effective value, declared value, value set at run time, and usage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits import windows
from penstock.core.limits.admission import (
    EVERYWHERE,
    KINDS,
    Admission,
    Declaration,
    DeclaredScope,
    DeclaredValue,
    LimitField,
    ScopeRules,
    cluster_scope,
    declared,
    group_scope,
    namespace_scope,
    queue_scope,
)
from penstock.core.limits.policies import SCOPE_SETTINGS, LimitSetting, Policy, SettingValue
from penstock.core.limits.windows import Counts, Window
from penstock.core.model import Queue, RunId, Task
from penstock.core.scheduling.gates import RAMP_S, ScopeState

QUEUE_LIMIT_SETTINGS = (
    LimitSetting.LEASE_CAP,
    LimitSetting.DISPATCHES,
    LimitSetting.WINDOW,
    LimitSetting.GROUP,
    LimitSetting.PAUSED,
)
"""The settings of a queue that are limits."""
WINDOW_SOURCE = "server.admission.dispatch_window"
SCOPES_SOURCE = "server.admission.scopes"
ANY_QUEUE = "*"
"""Every queue that has no entry of its own."""
_COUNTING = (LimitSetting.LEASE_CAP, LimitSetting.DISPATCHES, LimitSetting.COST, LimitSetting.PAUSED)
"""A scope has counters as long as one of these is set or declared."""


class LimitPart(StrEnum):
    """The tasks that a limit of a namespace, group or cluster covers: both kinds together, or one."""

    ALL = "all"
    WORKFLOW = "workflow_tasks"
    ACTIVITY = "activity_tasks"

    @property
    def kind(self) -> str | None:
        return None if self is LimitPart.ALL else self.removesuffix("_tasks")


Parts = Mapping[LimitPart, str]
"""Scope names by the tasks they cover."""


def cluster_parts() -> Parts:
    return {part: cluster_scope(part.kind) for part in LimitPart}


def namespace_parts(namespace: str) -> Parts:
    return {part: namespace_scope(namespace, part.kind) for part in LimitPart}


def group_parts(namespace: str, group: str) -> Parts:
    """The scopes of a group; one shared by all namespaces covers only both kinds together."""
    parts = [LimitPart.ALL] if namespace == EVERYWHERE else list(LimitPart)
    return {part: group_scope(namespace, group, part.kind) for part in parts}


class LimitView(Struct, frozen=True):
    """One limit with its layers: a value set at run time takes precedence over the declared one."""

    setting_name: LimitSetting
    value: int | str | None
    source: str | None
    declared: DeclaredValue | None = None
    live: SettingValue | None = None


class Usage(Struct, frozen=True):
    """The usage of a limit; None where it is not counted."""

    most: int | None = None
    used: int | None = None

    @property
    def left(self) -> int | None:
        return None if self.most is None or self.used is None else max(0, self.most - self.used)


class CoolDown(Struct, frozen=True):
    """A cool-down: closed until a time, then opening step by step."""

    until_ms: int
    opens_fully_at_ms: int
    is_closed: bool


class LimitsView(Struct, frozen=True):
    """The limits of one queue or scope, with their usage and the leases that hold them."""

    scope: str
    version: int
    limits: Sequence[LimitView]
    leases: Usage
    dispatches: Usage
    cost: Usage | None
    """None: queues have no cost budget of their own."""
    cooling: CoolDown | None = None
    holders: Sequence[Task] = ()
    workflows: Mapping[RunId, str] = field(default_factory=dict)
    """The workflow ids of the holders' runs."""
    now_ms: int = 0

    def held_by(self, holders: Sequence[Task], workflows: Mapping[RunId, str]) -> LimitsView:
        return replace(self, holders=holders, workflows=workflows)


class ScopeUse(Struct, frozen=True):
    """A scope as it applies to one queue; other queues may have other declared limits."""

    rules: ScopeRules
    leases: Usage
    dispatches: Usage
    cost: Usage
    cooling: CoolDown | None


def use(rules: ScopeRules, state: ScopeState | None, now_ms: int) -> ScopeUse:
    seen = state or ScopeState(0, rules.name)
    return ScopeUse(
        rules=rules,
        leases=Usage(rules.leases, seen.running),
        dispatches=_in_window(rules.window, rules.dispatches, seen.window, now_ms),
        cost=_in_window(rules.window, rules.cost, seen.costs, now_ms),
        cooling=_cooling(seen, now_ms),
    )


def queue_limits(admission: Admission, queue: Queue, running: int, now_ms: int) -> LimitsView:
    """The limits of a queue, which uses this version of the admission."""
    declaration, limits = admission.declaration, queue.limits
    found = {
        LimitSetting.LEASE_CAP: _says(declaration, LimitField.QUEUE_LEASES, queue),
        LimitSetting.DISPATCHES: _says(declaration, LimitField.QUEUE_DISPATCHES, queue),
        LimitSetting.WINDOW: DeclaredValue(declaration.window.value, WINDOW_SOURCE),
        LimitSetting.GROUP: _says(declaration, LimitField.GROUP, queue),
    }
    live = queue.policy.at(now_ms).settings
    return LimitsView(
        scope=queue_scope(queue.namespace, queue.name, queue.kind),
        version=queue.policy.version,
        limits=[
            _limit(setting_name, live.get(setting_name), found.get(setting_name), "task_queue.limits")
            for setting_name in QUEUE_LIMIT_SETTINGS
        ],
        leases=Usage(queue.rules.lease_cap, running),
        dispatches=_in_window(limits.window, limits.dispatches, queue.window, now_ms),
        cost=None,
        now_ms=now_ms,
    )


def settings_of(scope: str) -> Sequence[LimitSetting]:
    """The settings of a scope; a namespace and the cluster say how many approvals a change needs."""
    governs = scope == cluster_scope() or (scope.startswith("namespace:") and "/" not in scope)
    return (*SCOPE_SETTINGS, LimitSetting.CHANGE_APPROVALS) if governs else SCOPE_SETTINGS


def _says(declaration: Declaration, field_: LimitField, queue: Queue) -> DeclaredValue | None:
    return declared(declaration, field_, queue.namespace, queue.name, queue.kind)


def scope_limits(
    admission: Admission, name: str, queues: Sequence[Queue], state: ScopeState | None, now_ms: int
) -> LimitsView:
    """The limits of a scope; `queues` are the queues that may belong to it."""
    row = admission.row(name)
    policy = Policy() if row is None else row.policy
    live, found = policy.at(now_ms).settings, _declared(admission.declaration, name, queues)
    source = f"{_word(name)}.limits"
    limits = [
        _limit(setting_name, live.get(setting_name), found.get(setting_name), source)
        for setting_name in settings_of(name)
    ]
    value = {each.setting_name: each.value for each in limits}
    counting = any(value[setting_name] is not None for setting_name in _COUNTING)
    seen = state or ScopeState(0, name)
    window = Window(str(value[LimitSetting.WINDOW]))
    return LimitsView(
        scope=name,
        version=policy.version,
        limits=limits,
        leases=Usage(_number(value[LimitSetting.LEASE_CAP]), seen.running if counting else None),
        dispatches=_in_window(window, _number(value[LimitSetting.DISPATCHES]), seen.window, now_ms),
        cost=_in_window(window, _number(value[LimitSetting.COST]), seen.costs, now_ms),
        cooling=_cooling(seen, now_ms),
        now_ms=now_ms,
    )


def _limit(
    setting_name: LimitSetting, live: SettingValue | None, found: DeclaredValue | None, source: str
) -> LimitView:
    if live is not None:
        return LimitView(setting_name, live.value, source, found, live)
    return (
        LimitView(setting_name, None, None)
        if found is None
        else LimitView(setting_name, found.value, found.source, found)
    )


def _in_window(window: Window, most: int | None, counts: Counts, now_ms: int) -> Usage:
    return Usage() if most is None else Usage(most, windows.used(window, counts, now_ms))


def _number(value: int | str | None) -> int | None:
    return value if isinstance(value, int) else None


def _cooling(state: ScopeState, now_ms: int) -> CoolDown | None:
    until_ms = state.cool_until_ms
    if until_ms is None or now_ms >= until_ms + RAMP_S * 1_000:
        return None
    return CoolDown(until_ms, until_ms + RAMP_S * 1_000, now_ms < until_ms)


# Declared limits of a scope


def _word(name: str) -> str:
    """`cluster`, `namespace` or `group`."""
    return name.partition(":")[0].partition("/")[0]


def _declared(
    declaration: Declaration, name: str, queues: Sequence[Queue]
) -> dict[LimitSetting, DeclaredValue]:
    whole = declaration.scopes.get(name, DeclaredScope())
    window = whole.window or declaration.window
    found: dict[LimitSetting, DeclaredValue] = {
        LimitSetting.WINDOW: DeclaredValue(window.value, SCOPES_SOURCE if whole.window else WINDOW_SOURCE)
    }
    for setting_name, value in (
        (LimitSetting.LEASE_CAP, whole.leases),
        (LimitSetting.DISPATCHES, whole.dispatches),
        (LimitSetting.COST, whole.cost),
    ):
        if value is not None:
            found[setting_name] = DeclaredValue(value, SCOPES_SOURCE)
    return found | _declared_by_kind(declaration, name, queues)


def _declared_by_kind(
    declaration: Declaration, name: str, queues: Sequence[Queue]
) -> dict[LimitSetting, DeclaredValue]:
    """Limits declared for one kind of task of a namespace or group."""
    word, _, rest = name.partition(":")
    namespace, *inside = rest.split("/")
    if not inside or inside[-1] not in KINDS:
        return {}
    kind = inside[-1]
    found: dict[LimitSetting, DeclaredValue | None] = {}
    if word == "namespace":
        found = {
            setting_name: declared(declaration, field_, namespace, ANY_QUEUE, kind)
            for setting_name, field_ in _NAMESPACE_FIELDS.items()
        }
    elif len(inside) > 1:
        members = _queues_of_group(declaration, namespace, inside[0], kind, queues)
        found = {LimitSetting.DISPATCHES: _least(declaration, namespace, kind, members)}
    return {setting_name: each for setting_name, each in found.items() if each is not None}


_NAMESPACE_FIELDS = {
    LimitSetting.LEASE_CAP: LimitField.NAMESPACE_LEASES,
    LimitSetting.DISPATCHES: LimitField.NAMESPACE_DISPATCHES,
}


def _queues_of_group(
    declaration: Declaration, namespace: str, group: str, kind: str, queues: Sequence[Queue]
) -> set[str]:
    """Queues that a configuration or an operator put into a group."""
    joined = {each.name for each in queues if each.kind == kind and each.limits.group == group}
    members = _members(declaration, namespace)
    return joined | {each.queue for each in members if (each.group, each.kind) == (group, kind)}


def _least(
    declaration: Declaration, namespace: str, kind: str, queues: Iterable[str]
) -> DeclaredValue | None:
    """The lowest limit declared by a queue of the group."""
    found = [declared(declaration, LimitField.GROUP_DISPATCHES, namespace, queue, kind) for queue in queues]
    return min((each for each in found if each is not None), key=lambda each: int(each.value), default=None)


class _Member(NamedTuple):
    """A queue, or all queues, that a configuration puts into a group."""

    queue: str
    group: str
    kind: str


def _members(declaration: Declaration, namespace: str) -> Iterator[_Member]:
    for key, sections in declaration.overrides.items():
        inside, parted, queue = key.partition(":")
        if parted and inside != namespace:
            continue
        for kind, section in sections.items():
            group = section.get(LimitField.GROUP)
            if group:
                yield _Member(queue if parted else key, str(group), kind)


def groups(admission: Admission, namespace: str, queues: Sequence[Queue]) -> Sequence[tuple[str, str]]:
    """The budget groups that a namespace's queues can belong to, as (namespace or `*`, group), by name."""
    found = {(namespace, each.limits.group) for each in queues if each.limits.group is not None}
    found |= {(namespace, each.group) for each in _members(admission.declaration, namespace)}
    for name in (*(row.name for row in admission.rows), *admission.declaration.scopes):
        found |= set(_group(name))
    mine = {each for each in found if each[0] in (namespace, EVERYWHERE)}
    return sorted(mine, key=lambda each: (each[1], each[0]))


def _group(name: str) -> Iterator[tuple[str, str]]:
    word, _, rest = name.partition(":")
    if word == "group":
        namespace, group, *_ = rest.split("/")
        yield namespace, group
