"""`RetryPolicy`, defined with the options of the dispatch configuration."""

from __future__ import annotations

from penstock.dispatch.retry import FOR_EVER, PAUSES_MAX, RetryPolicy

__all__ = ["FOR_EVER", "PAUSES_MAX", "RetryPolicy"]
