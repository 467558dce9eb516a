"""The limits of a recorded window, in the words of the API: as they were at its beginning, and every change.

Caps and budgets are taken from the grants, which carry the limits of their decision, so those of a configuration are
there, too. All other settings of a queue are those of now, with the changes of the window taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.core.limits.policies import LimitSetting, PolicyChange
from penstock.core.verify.journal import LeaseGranted, ScopeLimits, SettingsChanged
from penstock.wire.limits.limit_paths import LimitSettings, LimitTarget
from penstock.wire.limits.queue_settings import change as shown_change

_FROM_GRANTS = ("max_active_leases", "max_dispatches_per_minute", "max_cost_per_minute", "window")
_NAMES = {"window": "dispatch_window"}
_OF_SCOPES = {"max_running": "max_active_leases"}
_COVERED = {"max_running", "max_dispatches_per_minute", "max_cost_per_minute", "dispatch_window"}
"""Settings that grants tell better."""
_OF_NO_LOAD = {"worker_rps_limit", LimitSetting.CHANGE_APPROVALS}
"""Settings that a replay leaves out: what workers report, and who approves changes."""
_OF_KEYS = {"rps_limit", "max_running", "paused"}
_PARTS = {"activity": "activity_tasks", "workflow": "workflow_tasks"}


def target_of(scope: str) -> tuple[LimitTarget, Mapping[str, Any]] | None:
    """What a scope's name belongs to, and the parts of a request that name it; None: a name of no scope."""
    kind, _, rest = scope.partition(":")
    if kind == "queue":
        name, _, of = rest.partition("/")[2].rpartition("/")
        return LimitTarget("queue", name), {"task_queue_type": of}
    if kind == "group":
        namespace, _, name = rest.partition("/")
        name, _, part = name.partition("/")
        return LimitTarget("group", name), _part(part) | ({"scope": "global"} if namespace == "*" else {})
    if kind == "namespace":
        return LimitTarget("namespace"), _part(rest.partition("/")[2])
    if kind.partition("/")[0] == "cluster":
        return LimitTarget("cluster"), _part(kind.partition("/")[2])
    return None


def _part(kind: str) -> dict[str, Any]:
    return {"kind": _PARTS[kind]} if kind else {}


class RecordedLimits:
    """Collects the limits of a window from the lines of the journal, in their order."""

    def __init__(self, from_ms: int) -> None:
        """Start at the beginning of the window; times of the result count from it."""
        self._from_ms = from_ms
        self._caps: dict[str, ScopeLimits] = {}
        self._first: dict[str, dict[tuple[str, str | None], Any]] = {}
        """By scope, the value that each setting had before its first change."""
        self._settled_at_ms: dict[str, int] = {}
        self._found: list[LimitSettings] = []
        self._groups: dict[tuple[str, str], str] = {}
        self.queues: dict[tuple[str, str], None] = {}
        """Names and kinds of the queues in the window."""

    def granted(self, line: LeaseGranted) -> None:
        """Note the caps of a grant, if they differ from those of the one before."""
        for each in line.scopes:
            before = self._caps.get(each.scope)
            if before is not None and _caps(before) == _caps(each):
                continue
            self._caps[each.scope] = each
            at_ms = 0 if before is None else max(0, line.at_ms - self._from_ms)
            changed_ms = self._settled_at_ms.get(each.scope)
            if before is not None and changed_ms is not None:
                at_ms = changed_ms
            settings = {name: value for name, value in _caps(each).items() if value is not None}
            if before is not None:
                settings = {
                    name: value for name, value in _caps(each).items() if value != _caps(before)[name]
                }
            self._add(each.scope, settings, at_ms)
            if each.scope.startswith("group:"):
                self._join(line, each.scope)

    def _join(self, line: LeaseGranted, scope: str) -> None:
        target = target_of(scope)
        if target is not None:
            self._groups[line.task_queue, line.kind] = target[0].name

    def changed(self, line: SettingsChanged) -> None:
        """Note a change of settings."""
        at_ms = line.at_ms - self._from_ms
        self._settled_at_ms[line.scope] = max(0, at_ms)
        if at_ms < 0:
            return
        settings: dict[str, Any] = {}
        for each in line.changes:
            if each.setting in _OF_NO_LOAD:
                continue
            shown = shown_change(
                PolicyChange(0, 0, "", each.setting, each.key, each.before, each.after, None)
            )
            self._first.setdefault(line.scope, {}).setdefault((each.setting, each.key), shown["before"])
            if each.key is not None:
                _of_key(settings, each.setting, each.key, shown["after"])
            elif each.setting not in _COVERED and line.scope != "declared":
                settings[each.setting] = shown["after"]
        self._add(line.scope, settings, at_ms)

    def _add(self, scope: str, settings: Mapping[str, Any], at_ms: int) -> None:
        found = target_of(scope)
        if found is not None and settings:
            target, named = found
            self._found.append(LimitSettings(target, {**settings, **named}, at_ms))

    def settings(
        self, namespace: str, now: Mapping[tuple[str, str], Mapping[str, Any]]
    ) -> Iterator[LimitSettings]:
        """All limits in order of time.

        Args:
            namespace: of the queues.
            now: the settings of each queue as the API shows them, by name and kind.
        """
        for (name, kind), config in now.items():
            scope = f"queue:{namespace}/{name}/{kind}"
            settings = self._at_first(scope, config)
            if (name, kind) in self._groups:
                settings["dispatch_budget_group"] = self._groups[name, kind]
            if settings:
                named = {"task_queue_type": kind}
                yield LimitSettings(LimitTarget("queue", name), {**settings, **named})
        yield from sorted(self._found, key=lambda each: each.at_ms)

    def _at_first(self, scope: str, config: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a queue at the beginning, without caps."""
        settings: dict[str, Any] = {}
        for setting in LimitSetting:
            made = config.get(setting.value)
            if setting.value not in _COVERED and isinstance(made, Mapping):
                settings[setting.value] = made["value"]
        for each in config.get("keys") or ():
            key = each["fairness_key"]
            _of_key(settings, "fairness_weight_override", key, each.get("weight_override"))
            for name in sorted(_OF_KEYS):
                if each.get(name):
                    _of_key(settings, name, key, each[name])
        for (setting_name, key_name), before in self._first.get(scope, {}).items():
            if key_name is not None:
                _of_key(settings, setting_name, key_name, before)
            elif setting_name not in _COVERED:
                settings[setting_name] = before
        settings.pop("dispatch_budget_group", None)
        return _set_only(settings)


def _of_key(settings: dict[str, Any], name: str, key: str, value: Any) -> None:
    """Put a setting of one key where `LimitSettings` have it."""
    if name == "fairness_weight_override":
        settings.setdefault("weights", {})[key] = value
    else:
        settings.setdefault("keys", {}).setdefault(key, {})[name] = value


def _set_only(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that are unset, also of single keys."""
    found = {
        name: _set_only(value) if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if value is not None
    }
    return {name: value for name, value in found.items() if value != {}}


def _caps(limits: ScopeLimits) -> dict[str, Any]:
    """The caps of a scope in the words of the API. The window matters only where dispatches or costs are counted."""
    found = {_NAMES.get(name, name): getattr(limits, name) for name in _FROM_GRANTS}
    if limits.max_dispatches_per_minute is None and limits.max_cost_per_minute is None:
        found["dispatch_window"] = None
    if limits.scope.startswith("queue:"):
        del found["max_cost_per_minute"]
    return found
