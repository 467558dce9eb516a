"""Traces of simulated loads: what the engine wrote into its journal, recorded as `penstock trace export` does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.simulator.model_file import generate
from penstock.simulator.traces.recorder import ServerState, record
from penstock.simulator.traces.trace_file import Trace, TraceHead, read_trace, write_trace
from penstock.simulator.workload import Workload
from penstock.wire.operations.journal import read_journal
from tests.simulator.loads import START_MS, journal_of, model


def head(from_ms: int, until_ms: int, **more: Any) -> TraceHead:
    return TraceHead(product="0.1.0", namespace="default", from_ms=from_ms, until_ms=until_ms, **more)


async def trace_of(
    of: Workload, path: Path, window_ms: tuple[int, int], state: ServerState | None = None
) -> Trace:
    """What a server that has this load would export of a window."""
    return exported(
        await journal_of(of), path, (of.start_ms + window_ms[0], of.start_ms + window_ms[1]), state
    )


def exported(
    lines: list[bytes], path: Path, window_ms: tuple[int, int], state: ServerState | None = None
) -> Trace:
    """The trace of a window of a journal, written and read again."""
    events, recorder = record(read_journal(lines, "the journal"), "default", *window_ms)
    write_trace(path, head(*window_ms), events, recorder.tail(state or ServerState()))
    return read_trace(path)


def load(**fields: Any) -> Workload:
    """A load as its model file would give it."""
    return generate(model(start="2026-01-05T09:00:00Z", **fields), 1, 100_000)


assert load(arrivals=[{"queue": "q", "count": 1}]).start_ms == START_MS
