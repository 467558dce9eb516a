"""Laws are checked by examples, not by the clock: how long one takes says nothing about the core."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("core", deadline=None)
settings.load_profile("core")
