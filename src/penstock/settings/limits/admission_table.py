"""The table `[admission]` of a file: which of its values are settings under another name, and which are more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.settings.declared_limits import ScopeField
from penstock.settings.diagnostics import ConfigPath, Diagnostics, Steps
from penstock.settings.limits.admission import CLUSTER_CAPS, DEFAULTS, UnreadTable
from penstock.settings.limits.overrides import ALIASES, KIND_OF, members, unknown

NAME = "admission"
QUEUES = "queues"
GROUPS = "groups"
VERSION = "version"

_KIND_NAMES = {kind: name for name, kind in KIND_OF.items()}


def _settings() -> Iterator[tuple[Steps, str]]:
    yield (ScopeField.WINDOW.value,), "DW_DISPATCH_WINDOW"
    yield (VERSION,), "DW_ADMISSION_VERSION"
    for setting, (kind, what) in DEFAULTS.items():
        yield ("defaults", _KIND_NAMES[kind], what.value), setting
        for alias in (alias for alias, meant in ALIASES.items() if meant is what):
            yield ("defaults", _KIND_NAMES[kind], alias), setting
    for setting, scope in CLUSTER_CAPS.items():
        kind = scope.partition("/")[2]
        yield ("cluster", *([_KIND_NAMES[kind]] if kind else []), ScopeField.LEASES.value), setting


_SETTING_AT = dict(_settings())


@dataclass(frozen=True, slots=True)
class AdmissionTable:
    """Settings with their values, and the tables that no setting covers."""

    settings: list[tuple[str, object, ConfigPath]] = field(default_factory=list)
    queues: UnreadTable | None = None
    groups: UnreadTable | None = None


def read_admission_table(value: object, place: ConfigPath, diagnostics: Diagnostics) -> AdmissionTable:
    """Split the table into settings and nested tables, and report unknown keys."""
    found = AdmissionTable()
    nested: dict[str, UnreadTable] = {}
    for name, inner, at in members(value, place, diagnostics, f"must hold {', '.join(_names(()))}"):
        if name in (QUEUES, GROUPS):
            nested[name] = UnreadTable(inner, at)
        else:
            found.settings.extend(_sorted((name,), inner, at, diagnostics))
    return AdmissionTable(found.settings, nested.get(QUEUES), nested.get(GROUPS))


def _sorted(
    steps: Steps, value: object, place: ConfigPath, diagnostics: Diagnostics
) -> Iterator[tuple[str, object, ConfigPath]]:
    if steps in _SETTING_AT:
        yield _SETTING_AT[steps], value, place
        return
    names = _names(steps)
    if not names:
        diagnostics.refuse(place.source, place.path, unknown(steps[-1], _names(steps[:-1])))
        return
    for name, inner, at in members(value, place, diagnostics, f"must hold {', '.join(names)}"):
        yield from _sorted((*steps, name), inner, at, diagnostics)


def _names(steps: Steps) -> list[str]:
    """The keys that are allowed at this depth."""
    depth = len(steps)
    names = [path[depth] for path in _SETTING_AT if len(path) > depth and path[:depth] == steps]
    return list(dict.fromkeys([*names, *([QUEUES, GROUPS] if not steps else [])]))
