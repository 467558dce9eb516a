"""What was granted under a change set: the grants of the journal that cite the versions that its apply made.

A grant cites, for its queue and for every scope that counted it, the version of the settings in force. So what is
compared is no period of time but what was decided under either settings: the version before the apply, and the one that
it made. The next change of the same scope, whoever makes it, ends the latter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct


class CitedVersion(Struct, frozen=True):
    """The version of a scope's settings that a grant was made under."""

    scope: str
    version: int | None = None


class CitingGrant(Struct, frozen=True):
    """A grant of the journal."""

    scopes: tuple[CitedVersion, ...]
    waited_ms: int | None = None
    """How long the task had been ready; None: an older line."""


class GrantsUnder(Struct, frozen=True):
    """The grants under one version of a scope, and how long their tasks had waited."""

    version: int
    grants: int
    p50_ms: int | None = None
    p95_ms: int | None = None
    longest_ms: int | None = None


class ScopeEffect(Struct, frozen=True):
    """The grants of a scope under the version before a change set and under the one that it made."""

    scope: str
    before: GrantsUnder
    under: GrantsUnder
    is_current: bool
    """Whether nobody has changed the scope since."""


def effects(
    made: Mapping[str, int], present: Mapping[str, int], grants: Iterable[CitingGrant]
) -> Sequence[ScopeEffect]:
    """What was granted under a change set, by scope.

    Args:
        made: The version of each scope that the apply made.
        present: The version of each scope now.
        grants: Grants from before and after it.
    """
    waits: dict[tuple[str, int], list[int | None]] = {}
    for scope, version in made.items():
        waits[scope, version] = []
        waits[scope, version - 1] = []
    for grant in grants:
        for cited in grant.scopes:
            found = None if cited.version is None else waits.get((cited.scope, cited.version))
            if found is not None:
                found.append(grant.waited_ms)
    return [
        ScopeEffect(
            scope,
            _under(version - 1, waits[scope, version - 1]),
            _under(version, waits[scope, version]),
            present.get(scope) == version,
        )
        for scope, version in sorted(made.items())
    ]


def _under(version: int, waits: Sequence[int | None]) -> GrantsUnder:
    known = sorted(each for each in waits if each is not None)
    if not known:
        return GrantsUnder(version, len(waits))
    return GrantsUnder(version, len(waits), _quantile(known, 50), _quantile(known, 95), known[-1])


def _quantile(ordered: Sequence[int], percent: int) -> int:
    """The smallest value that at least so many percent do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
