"""Tracebacks as text: reduced to frames of user code, and bounded in size.

A traceback of workflow or activity code passes through the SDK and asyncio, but the reader wants the lines of their
own code. Frames of the SDK, of asyncio and of `concurrent.futures` are therefore omitted, unless nothing else remains
(an error that the SDK itself raises keeps all of its frames). Text that is still too long loses its outermost frames:
the line that raised is always kept.

Values of local variables are never included, because they may contain secrets.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import linecache
import re
import traceback
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

STACK_CHARS_MAX: Final = 20_000
STACK_FRAMES_MAX: Final = 100
CAUSES_MAX: Final = 10
LINES_AROUND: Final = 3
LINE_CHARS_MAX: Final = 200
HEADING: Final = "Traceback (most recent call last):\n"
_FRAME: Final = re.compile(
    r'(?P<place>^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in [^\n]*\n)(?:^    [^\n]*\n?)*',
    re.MULTILINE,
)
"""A frame as Python prints it, with the lines below it."""
_SDK: Final = Path(__file__).resolve().parents[1]
_AROUND: Final = tuple(
    f"{folder}/"
    for folder in (
        _SDK,
        _SDK.parent / "testing",
        _SDK.parent / "engines",
        Path(asyncio.__file__).resolve().parent,
        Path(concurrent.futures.__file__).resolve().parent,
    )
)


def frames_text(error: BaseException) -> str | None:
    """Return the frames of an error without those of its causes; None if it was never raised."""
    if error.__traceback__ is None:
        return None
    stack = traceback.extract_tb(error.__traceback__, limit=-STACK_FRAMES_MAX)
    return bounded("".join(user_frames(stack).format()))


def traceback_text(error: BaseException) -> str:
    """Return an error with its frames and all of its causes, as Python prints it."""
    whole = traceback.TracebackException.from_exception(error, limit=-STACK_FRAMES_MAX)
    for each in _chain(whole):
        each.stack = user_frames(each.stack)
    return bounded("".join(whole.format()))


def failure_text(failure: Mapping[str, Any]) -> str:
    """Return an encoded failure as text: type, message, frames, causes."""
    return "\n".join(_failure_lines(failure)).rstrip("\n")


def without_tracebacks(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report without the tracebacks of its failure, its causes, and the failures in its commands."""
    bare = {name: value for name, value in report.items() if name != "stack_trace"}
    for name in ("failure", "exception", "cause"):
        if isinstance(bare.get(name), Mapping):
            bare[name] = without_tracebacks(bare[name])
    if isinstance(commands := bare.get("commands"), list):
        bare["commands"] = [without_tracebacks(each) for each in commands]
    return bare


def with_source_lines(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report in which each frame of its failure, its causes, and the failures in its commands has the lines
    around the one that raised. A frame whose file cannot be read stays as it is.
    """
    found = dict(report)
    if isinstance(stack := found.get("stack_trace"), str):
        found["stack_trace"] = bounded(_FRAME.sub(_around, stack))
    for name in ("failure", "exception", "cause"):
        if isinstance(found.get(name), Mapping):
            found[name] = with_source_lines(found[name])
    if isinstance(commands := found.get("commands"), list):
        found["commands"] = [with_source_lines(each) for each in commands]
    return found


def _around(frame: re.Match[str]) -> str:
    number = int(frame["line"][:9])
    source = linecache.getlines(frame["file"])
    first, last = max(1, number - LINES_AROUND), min(len(source), number + LINES_AROUND)
    if not source or number > len(source):
        return frame[0]
    lines = (
        f"    {'>' if each == number else ' '} {each} |{source[each - 1].rstrip()[:LINE_CHARS_MAX]}\n"
        for each in range(first, last + 1)
    )
    return frame["place"] + "".join(lines)


def user_frames(stack: traceback.StackSummary) -> traceback.StackSummary:
    """Return the frames of user code in order; all frames if none is user code."""
    own = [frame for frame in stack if not frame.filename.startswith(_AROUND)]
    return traceback.StackSummary.from_list(own) if own else stack


def bounded(text: str) -> str:
    """Return the end of a text, which contains the line that raised."""
    return text if len(text) <= STACK_CHARS_MAX else f"…{text[1 - STACK_CHARS_MAX :]}"


def _chain(error: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Yield an error, its causes and the members of a group, each once."""
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        left += filter(None, (each.__cause__, each.__context__))
        left += each.exceptions or ()


def _failure_lines(failure: Mapping[str, Any]) -> Iterator[str]:
    for number, each in enumerate(islice(_causes(failure), CAUSES_MAX)):
        if number:
            yield "Caused by:"
        if isinstance(stack := each.get("stack_trace"), str) and stack:
            yield f"{HEADING}{stack}".rstrip("\n")
        yield f"{each.get('type') or 'Failure'}: {each.get('message')}"


def _causes(failure: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    at: Any = failure
    while isinstance(at, Mapping):
        yield at
        at = at.get("cause")
