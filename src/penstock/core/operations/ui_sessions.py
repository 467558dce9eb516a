"""Sessions of the dashboard: what is recorded, and how long one lasts.

A browser cannot send bearer tokens, so a sign-in exchanges a token for a cookie with a random secret. The store keeps
the secret's digest, the role, and a fingerprint of the token that is keyed with the secret: a copy of the table
reveals neither, and a session ends when its token is no longer configured.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

SESSION_MS_MAX: Final = 12 * 3_600_000
IDLE_MS_MAX: Final = 3_600_000
TOUCHED_EVERY_MS: Final = 60_000
"""How old a recorded use may be before the next one is recorded."""


class UiSession(Struct, frozen=True):
    """One browser that is signed in."""

    session_id: str
    """The digest of the cookie."""
    name: str
    """The author of the changes that are made in the session."""
    role: str
    fingerprint: str
    """The HMAC of the token, keyed with the cookie."""
    created_at_ms: int
    seen_at_ms: int

    def is_live(self, now_ms: int) -> bool:
        """Whether the session has neither reached its longest duration nor been idle too long."""
        return now_ms < self.created_at_ms + SESSION_MS_MAX and now_ms < self.seen_at_ms + IDLE_MS_MAX

    def is_due(self, now_ms: int) -> bool:
        """Whether a use at this moment should be recorded."""
        return now_ms >= self.seen_at_ms + TOUCHED_EVERY_MS


def unused_since(now_ms: int) -> int:
    """Sessions that were last used before this instant have ended; one that is too old is not used either."""
    return now_ms - IDLE_MS_MAX
