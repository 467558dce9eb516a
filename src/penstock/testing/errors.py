"""Errors for tests that wait in vain."""

from __future__ import annotations


class NothingWillHappenError(Exception):
    """A result is awaited, but nothing is running and nothing is due: it would never come.

    The message says what the workflow waits for. Send a signal, start the missing worker, or wait for less.
    """


class TooManySkipsError(NothingWillHappenError):
    """Time was skipped very often for one wait without a result: something repeats forever.

    The message says what the workflow waits for. An activity that fails needs `RetryPolicy(maximum_attempts=...)`.
    """
