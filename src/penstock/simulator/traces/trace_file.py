"""The format of a trace: lines of JSON, packed with gzip.

The first line names the format, its version, the product and the window. Then come events in the shape of the journal
(`ready`, `granted`, `ended`, `gone`), in its order. The last line has the workers and limits of the window, and what
is missing; a file without it was cut off.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from penstock.core.model import TaskKind
from penstock.core.verify.journal import LeaseEnded, LeaseGranted, TaskGone, TaskReady
from penstock.errors import InvalidInput, Reason
from penstock.wire.limits.limit_paths import LimitSettings
from penstock.wire.operations.journal import read_journal

FORMAT = "penstock-trace"
FORMAT_VERSION = 1
TIME_MAX_MS = 253_402_300_799_999
"""The end of the year 9999."""
TraceEvent = TaskReady | LeaseGranted | LeaseEnded | TaskGone


class TraceHead(Struct, frozen=True, kw_only=True):
    """The first line. Times are milliseconds since 1970 by the clock of the server's database."""

    format: Literal["penstock-trace"] = "penstock-trace"
    version: int = FORMAT_VERSION
    product: str
    """The version of the program that wrote it."""
    namespace: str
    from_ms: int
    until_ms: int
    anonymised: bool = False


class RecordedWorker(Struct, frozen=True):
    """A worker, for as long as it took tasks of one kind."""

    worker_id: str
    queue: str
    kind: str
    slots: int
    types: tuple[str, ...] = ()
    joins_ms: int = 0
    """After the beginning of the window."""
    leaves_ms: int | None = None
    dies_ms: int | None = None
    """When it fell silent, with its leases."""


class TraceTail(Struct, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """The last line."""

    lines: int
    """Of events, without the first and the last line."""
    workers: tuple[RecordedWorker, ...] = ()
    limits: tuple[LimitSettings, ...] = ()
    missing: tuple[str, ...] = ()
    """What the trace does not have, in words; nothing: it is complete."""
    clock_steps: tuple[int, ...] = ()
    """Where the clock was set back, in milliseconds since 1970."""
    notes: tuple[str, ...] = field(default=())


class Trace(Struct, frozen=True):
    """A trace that was read whole."""

    head: TraceHead
    tail: TraceTail
    events: Sequence[TraceEvent]
    digest: str = ""
    """Of the file, for the hash of what is computed from it."""

    @property
    def duration_ms(self) -> int:
        return self.head.until_ms - self.head.from_ms


def is_trace(path: Path) -> bool:
    """Whether a file is packed like a trace; a model never is."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b" or path.suffix == ".trace"
    except OSError:
        return path.suffix == ".trace"


def write_trace(path: Path, head: TraceHead, events: Iterable[dict[str, Any]], tail: TraceTail) -> None:
    """Write a trace; a file that is there already is replaced once everything was written."""
    encode = msgspec.json.Encoder().encode
    unfinished = path.with_name(f"{path.name}.part")
    try:
        # No file name and no time inside, so that the same window gives the same bytes.
        with unfinished.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
            file.write(encode(head) + b"\n")
            for event in events:
                file.write(encode(event) + b"\n")
            file.write(encode(tail) + b"\n")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_trace(path: Path) -> Trace:
    """Read a trace whole.

    Raises:
        InvalidInput: it is no trace, was cut off, is of a later format, or has a line that is none.
    """
    lines = _lines(path)
    head = _head(path, next(lines, b""))
    last = b""

    def body() -> Iterator[bytes]:
        nonlocal last
        for line in lines:
            if last:
                yield last
            last = line

    found = read_journal(body(), f"{path} (events)")
    events = [each for each in found if isinstance(each, TaskReady | LeaseGranted | LeaseEnded | TaskGone)]
    try:
        tail = msgspec.json.decode(last, type=TraceTail)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _cut_off(path, len(events)) from None
    if tail.lines != len(events):
        raise _invalid(f"{path} has {len(events):,} events where its last line counts {tail.lines:,}.")
    _check_kinds(path, events, tail)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Trace(head, tail, events, digest)


def _lines(path: Path) -> Iterator[bytes]:
    count = 0
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                yield line
                count += 1
    except gzip.BadGzipFile:
        raise _no_trace(path) from None
    except (EOFError, zlib.error):
        raise _cut_off(path, max(0, count - 1)) from None
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror or error}.") from None


class _Format(Struct):
    format: str = ""
    version: int = 0
    product: str = "?"


def _head(path: Path, line: bytes) -> TraceHead:
    try:
        known = msgspec.json.decode(line, type=_Format)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _no_trace(path) from None
    if known.format != FORMAT:
        raise _no_trace(path)
    if known.version != FORMAT_VERSION:
        raise _invalid(
            f"{path} is a trace of format {known.version}, written by penstock {known.product}; this program reads "
            f"format {FORMAT_VERSION}."
        )
    try:
        head = msgspec.json.decode(line, type=TraceHead)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _invalid(f"{path}, line 1: {error}.") from None
    if not 0 <= head.from_ms < head.until_ms <= TIME_MAX_MS:
        raise _invalid(f"{path}, line 1: from_ms and until_ms are no window of time.")
    return head


def _check_kinds(path: Path, events: Sequence[TraceEvent], tail: TraceTail) -> None:
    known = {kind.value for kind in TaskKind}
    kinds = {each.kind for each in events if isinstance(each, TaskReady | LeaseGranted)}
    unknown = (kinds | {each.kind for each in tail.workers}) - known
    if unknown:
        raise _invalid(f"{path} has tasks of an unknown kind {min(unknown)[:40]!r}.")


def _no_trace(path: Path) -> InvalidInput:
    return _invalid(f"{path} is not a trace. `penstock trace export` writes one.")


def _cut_off(path: Path, events: int) -> InvalidInput:
    return _invalid(f"{path} was cut off after {events:,} events: copy or export it again.")


def _invalid(message: str) -> InvalidInput:
    return InvalidInput(Reason.VALIDATION_FAILED, message)
