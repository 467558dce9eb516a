"""The last error of a task as it is stored: one text that holds a message and, below it, a stack trace.

Tasks and runs have one column for their last error. A stack trace follows the message after a line of its own, so that
a reader that knows nothing of it, such as a server of an earlier release, shows both as one readable text.
`split_error(join_error(message, stack))` returns what was joined, bounded in size.
"""

from __future__ import annotations

from typing import Final

MESSAGE_CHARS_MAX: Final = 4_000
STACK_CHARS_MAX: Final = 16_000
_BETWEEN: Final = "\nStack trace:\n"


def join_error(message: str, stack: str | None) -> str:
    """The text to store. A long stack trace is cut at the front, so that the raising line is kept."""
    head = message[:MESSAGE_CHARS_MAX].replace(_BETWEEN, "\nStack trace: \n")
    if not stack or not stack.strip():
        return head
    return f"{head}{_BETWEEN}{_end_of(stack)}"


def split_error(stored: str | None) -> tuple[str | None, str | None]:
    """The message and stack trace of a stored text, each None if it is missing."""
    if stored is None:
        return None, None
    message, found, stack = stored.partition(_BETWEEN)
    return message, stack if found else None


def _end_of(stack: str) -> str:
    return stack if len(stack) <= STACK_CHARS_MAX else f"…{stack[1 - STACK_CHARS_MAX :]}"
