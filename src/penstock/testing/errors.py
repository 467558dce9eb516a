"""What a test is told when it waits in vain."""

from __future__ import annotations


class NothingWillHappenError(Exception):
    """Somebody waits for a result, but nothing runs and nothing is due: it would never come.

    The message says what the workflow waits for. Signal it, start the worker that is missing, or wait for less.
    """


class TooManySkipsError(NothingWillHappenError):
    """Time was skipped very often for one wait, and the result did not come: something repeats itself for ever.

    The message says what the workflow waits for. An activity that fails needs `RetryPolicy(maximum_attempts=…)`.
    """
