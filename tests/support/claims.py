"""What a claim answered, for tests that expect one kind of answer."""

from __future__ import annotations

from penstock.core.scheduling.dispatch import Hold
from penstock.core.scheduling.polls import ClaimResult, Granted, Held, Leased, Retry


def leased_of(result: ClaimResult) -> tuple[Leased, ...]:
    """The tasks that a poll got; none if it was held, refused or is to be tried again."""
    return result.leased if isinstance(result, Granted) else ()


def hold_of(result: ClaimResult) -> Hold | None:
    """Why a poll got nothing, as far as is known."""
    held = result.held if isinstance(result, Retry) else result
    return held.hold if isinstance(held, Held) else None
