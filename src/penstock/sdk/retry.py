"""How often and how soon something is tried again: the value lives with the options that a file may give."""

from __future__ import annotations

from penstock.dispatch.retry import FOR_EVER, PAUSES_MAX, RetryPolicy

__all__ = ["FOR_EVER", "PAUSES_MAX", "RetryPolicy"]
