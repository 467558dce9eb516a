"""The limits of task queues as they are stored: policies, reported rates, and the limits in force."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from penstock.core.limits.admission import NO_ADMISSION, Admission, Declaration, ScopeRow
from penstock.core.limits.policies import NO_POLICY, Policy
from penstock.core.limits.rate_reports import RateConflict
from penstock.stores.sql.session import Session


@lru_cache(maxsize=4_096)
def policy_of(text: str | None) -> Policy:
    """Decodes a policy; cached, because few are in use."""
    return NO_POLICY if text is None else msgspec.json.decode(text, type=Policy)


@lru_cache(maxsize=64)
def _declaration_of(text: str | None) -> Declaration:
    return NO_ADMISSION.declaration if text is None else msgspec.json.decode(text, type=Declaration)


async def read_admission(session: Session) -> tuple[str, Admission]:
    """The limits in force, and their stamp."""
    rows = await session.fetch("get_admission")
    stamp, version, declared, by, at_ms = rows[0][1:6]
    scopes = tuple(ScopeRow(row[6], row[7], policy_of(row[8])) for row in rows if row[6] is not None)
    return stamp, Admission(version, _declaration_of(declared), scopes, by, at_ms)


async def admission_of(session: Session, stamp: str) -> Admission:
    """The limits of a queue with this stamp; or the current ones: a change that concerns it renews its stamp."""
    cacheable = session.cacheable.admissions
    if stamp not in cacheable:
        latest, admission = await read_admission(session)
        cacheable[stamp] = cacheable[latest] = admission
    return cacheable[stamp]


def rate_conflict_of(text: str | None) -> RateConflict | None:
    return None if text is None else msgspec.json.decode(text, type=RateConflict)
