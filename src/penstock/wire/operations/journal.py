"""JSON lines that `penstock verify` reads: the journal of a server, and observations of clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from msgspec import Meta

from penstock.core.verify.journal import (
    JournalLine,
    LeaseEnded,
    LeaseGranted,
    LeaseRenewed,
    LeaseStarted,
    RunAdmitted,
    RunClosed,
    SettingsChanged,
    TaskGone,
    TaskReady,
    WorkerChanged,
)
from penstock.core.verify.observations import (
    CallVerdict,
    LimitsSet,
    Observation,
    ObservedFinal,
    Polled,
    Quiescent,
    Reported,
    StartSent,
)
from penstock.errors import InvalidInput, Reason
from penstock.schema.nearest import nearest
from penstock.wire.fields import INT_MAX

Limit = Annotated[int, Meta(ge=0, le=INT_MAX)]
Instant = Annotated[float, Meta(ge=-INT_MAX, le=INT_MAX)]


class InvalidJournalLine(InvalidInput):
    """A line that cannot be parsed; nothing was checked."""

    def __init__(self, source: str, number: int, problem: str) -> None:
        super().__init__(Reason.VALIDATION_FAILED, f"{source}, line {number}: {problem}.")


class _Event(msgspec.Struct):
    event: str


class _Op(msgspec.Struct):
    op: str


class _LimitsSet(msgspec.Struct):
    """Limits that are left out stay as they are; null unsets one."""

    t_inv: Instant
    scope: Annotated[str, Meta(min_length=1)]
    t_ok: Instant | None = None
    verdict: CallVerdict = "unknown"
    expires_in_ms: Instant | None = None
    max_active_leases: Limit | msgspec.UnsetType | None = msgspec.UNSET
    max_dispatches_per_minute: Limit | msgspec.UnsetType | None = msgspec.UNSET
    max_cost_per_minute: Limit | msgspec.UnsetType | None = msgspec.UNSET
    window: Literal["minute", "sliding"] | msgspec.UnsetType = msgspec.UNSET
    paused: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def value(self) -> LimitsSet:
        limits = {
            name: given
            for name in (
                "max_active_leases",
                "max_dispatches_per_minute",
                "max_cost_per_minute",
                "window",
                "paused",
            )
            if (given := getattr(self, name)) is not msgspec.UNSET
        }
        return LimitsSet(self.t_inv, self.scope, limits, self.t_ok, self.verdict, self.expires_in_ms)


_PEEK_EVENT = msgspec.json.Decoder(_Event)
_PEEK_OP = msgspec.json.Decoder(_Op)
_EVENTS: dict[str, msgspec.json.Decoder[Any]] = {
    "granted": msgspec.json.Decoder(LeaseGranted),
    "started": msgspec.json.Decoder(LeaseStarted),
    "renewed": msgspec.json.Decoder(LeaseRenewed),
    "ended": msgspec.json.Decoder(LeaseEnded),
    "run_admitted": msgspec.json.Decoder(RunAdmitted),
    "run_closed": msgspec.json.Decoder(RunClosed),
    "ready": msgspec.json.Decoder(TaskReady),
    "gone": msgspec.json.Decoder(TaskGone),
    "worker": msgspec.json.Decoder(WorkerChanged),
    "settings": msgspec.json.Decoder(SettingsChanged),
}
_OPS: dict[str, msgspec.json.Decoder[Any]] = {
    "poll": msgspec.json.Decoder(Polled),
    **dict.fromkeys(
        ("complete", "fail", "heartbeat", "started", "hand_back"), msgspec.json.Decoder(Reported)
    ),
    "start": msgspec.json.Decoder(StartSent),
    "set_limits": msgspec.json.Decoder(_LimitsSet),
    "observed_final": msgspec.json.Decoder(ObservedFinal),
    "quiescent": msgspec.json.Decoder(Quiescent),
}


def read_journal(lines: Iterable[bytes], source: str) -> Iterator[JournalLine]:
    """The events of a journal. Raises `InvalidJournalLine` with the line number."""
    for number, raw in enumerate(lines, start=1):
        if raw.isspace():
            continue
        try:
            line = _decoder(_EVENTS, _PEEK_EVENT.decode(raw).event, "event").decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _fail(source, number, error)
        yield line


def read_observations(lines: Iterable[bytes], source: str) -> Iterator[Observation]:
    """The observations of a client. An incomplete last line is skipped: its writer was killed while writing."""
    for number, raw in enumerate(lines, start=1):
        if raw.isspace():
            continue
        try:
            seen = _decoder(_OPS, _PEEK_OP.decode(raw).op, "op").decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if not raw.endswith(b"\n") and not isinstance(error, msgspec.ValidationError):
                return
            _fail(source, number, error)
        if _is_answered_before_sent(seen):
            raise InvalidJournalLine(source, number, "the call returned before it was sent")
        yield seen.value if isinstance(seen, _LimitsSet) else seen


def _decoder(known: dict[str, msgspec.json.Decoder[Any]], name: str, field: str) -> msgspec.json.Decoder[Any]:
    decoder = known.get(name)
    if decoder is None:
        near = nearest(name[:64], known)
        hint = f"; did you mean {near[0]!r}" if near else ""
        raise msgspec.ValidationError(f"{field} {name[:64]!r} is unknown{hint}")
    return decoder


def _is_answered_before_sent(seen: object) -> bool:
    t_inv, t_ok = getattr(seen, "t_inv", None), getattr(seen, "t_ok", None)
    return t_inv is not None and t_ok is not None and t_ok < t_inv


def _fail(source: str, number: int, error: Exception) -> NoReturn:
    problem = "text that is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
    raise InvalidJournalLine(source, number, problem) from None
