"""The stored text of a run's structured fields: what its code waits for, where it comes from, and why it is blocked.

A `Run` holds `waits`, `lineage` and `blocked` as values; a store keeps each as JSON in one column, and calls these
functions where it reads and writes rows. The names and shapes below are data of released databases: fields may be
added, never renamed. Fields that have their default are left out, so that most runs store `{}` or a few characters.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple

from penstock.core import json_text
from penstock.core.model import NO_LINEAGE, NO_RETRY, ClosePolicy, Lineage, ReplayBlock, RetrySchedule, RunId
from penstock.core.schedules.record import FireKey, FireKind
from penstock.core.waits import (
    NO_WAITS,
    CancellationRequest,
    ConditionWait,
    Pause,
    Selection,
    SelectionMember,
    SignalWait,
    Waits,
)

_EMPTY = "{}"
_STORED_NAMES = {
    "selected": "selected",
    "hushed": "signals_deferred",
    "old": "old",
    "concurrent": "concurrent",
    "cancelling": "cancelling",
    "delivers_cancel": "delivers_cancel",
    "turned_back": "unhandled_signals",
    "to_start": "to_start",
}
"""Stored names of the plain fields of `Waits`, in the order in which they are written."""
_member_values = attrgetter(*SelectionMember.__struct_fields__)
_ORIGINS = (
    "parent_run_id",
    "parent_workflow_id",
    "parent_step",
    "continued_from",
    "retried_from",
    "first_run_id",
    "concurrency_key",
    "unique_key",
    "unique_until",
)
_decode_block = msgspec.json.Decoder(ReplayBlock).decode


def encode_waits(waits: Waits) -> str:
    if waits == NO_WAITS:
        return _EMPTY
    cached = waits.cached
    stored = {
        "condition": None if waits.condition is None else _condition_values(waits.condition),
        "signal": None if waits.signal is None else _condition_values(waits.signal),
        "groups": dict(waits.groups),
        "selections": [_selection_values(each) for each in waits.selections],
        **{name: getattr(waits, attribute) for name, attribute in _STORED_NAMES.items()},
        "external": list(waits.external),
        "ending": list(waits.ending),
        "streams": list(waits.streams),
        "places": list(waits.places),
        "cancellation": None if waits.cancellation is None else msgspec.to_builtins(waits.cancellation),
        "paused": None if waits.paused is None else msgspec.to_builtins(waits.paused),
        "paused_steps": [[step, msgspec.to_builtins(each)] for step, each in waits.paused_steps.items()],
        "cached": None if cached is None else list(cached if cached[2] else cached[:2]),
    }
    return json_text.written({name: value for name, value in stored.items() if value})


@lru_cache(maxsize=256)
def decode_waits(text: str) -> Waits:
    if text == _EMPTY:
        return NO_WAITS
    stored: dict[str, Any] = json_text.read(text)
    condition = stored.get("condition")
    plain = {attribute: stored[name] for name, attribute in _STORED_NAMES.items() if name in stored}
    return Waits(
        condition=ConditionWait(**condition) if condition else None,
        signal=SignalWait(**stored["signal"]) if "signal" in stored else None,
        groups=stored.get("groups", {}),
        selections=tuple(_selection(each) for each in stored.get("selections", ())),
        external=tuple(stored.get("external", ())),
        ending=tuple(stored.get("ending", ())),
        streams=tuple(stored.get("streams", ())),
        places=tuple(stored.get("places", ())),
        cached=_cached(stored.get("cached")),
        cancellation=msgspec.convert(stored["cancellation"], CancellationRequest)
        if "cancellation" in stored
        else None,
        paused=msgspec.convert(stored["paused"], Pause) if "paused" in stored else None,
        paused_steps={step: msgspec.convert(each, Pause) for step, each in stored.get("paused_steps", ())},
        **plain,
    )


def encode_lineage(lineage: Lineage) -> str:
    """`{}` for a run that was started by a caller."""
    if lineage == NO_LINEAGE:
        return _EMPTY
    stored: dict[str, Any] = {}
    for name in _ORIGINS:
        value = getattr(lineage, name)
        if value is not None:
            stored[name] = value
    if lineage.is_child:
        stored["parent_close_policy"] = lineage.parent_close_policy.value
    if lineage.fire is not None:
        stored["fire"] = list(astuple(lineage.fire))
    if lineage.copies:
        stored["copies"] = [list(each) for each in lineage.copies]
    if lineage.attempt != 1:
        stored["attempt"] = lineage.attempt
    if lineage.retry.given:
        stored["retry"] = {
            "max_attempts": lineage.retry.max_attempts,
            "backoff_s": list(lineage.retry.backoff_s),
            "non_retryable_error_types": list(lineage.retry.non_retryable_error_types),
        }
        if lineage.retry.backoff_ms:
            stored["retry"]["backoff_ms"] = list(lineage.retry.backoff_ms)
    return json_text.written(stored)


def decode_lineage(text: str) -> Lineage:
    if text == _EMPTY:
        return NO_LINEAGE
    stored = json_text.read(text)
    retry, fire = stored.pop("retry", None), stored.pop("fire", None)
    copies = tuple((last, RunId(run_id)) for last, run_id in stored.pop("copies", ()))
    policy = ClosePolicy(stored.pop("parent_close_policy", ClosePolicy.ABANDON))
    return Lineage(
        **stored,
        parent_close_policy=policy,
        retry=_retry(retry) if retry else NO_RETRY,
        copies=copies,
        fire=FireKey(fire[0], fire[1], FireKind(fire[2])) if fire else None,
    )


def encode_block(block: ReplayBlock | None) -> str | None:
    return None if block is None else json_text.written(block)


def decode_block(text: str | None) -> ReplayBlock | None:
    if text is None:
        return None
    try:
        return _decode_block(text)
    except msgspec.ValidationError:
        return _early_block(text)


def _early_block(text: str) -> ReplayBlock:
    """A block as early commits wrote it: `recorded` was one type, or null."""
    stored: dict[str, Any] = json_text.read(text)
    recorded = stored.pop("recorded", None)
    return msgspec.convert(
        stored | {"recorded": [recorded] if isinstance(recorded, str) else []}, ReplayBlock
    )


def _condition_values(condition: ConditionWait | SignalWait) -> dict[str, Any]:
    values = asdict(condition).items()
    return {name: value for name, value in values if value is not None and value is not False}


def _selection_values(selection: Selection) -> list[Any]:
    """A selection as nested lists: it may have a thousand members, and is written with each of their ends."""
    members = [_member_values(each) for each in selection.members.values()]
    stored = [selection.id, selection.base, selection.size, selection.resolved, members]
    return stored if selection.held is None else [*stored, list(selection.held)]


def _selection(stored: list[Any]) -> Selection:
    identifier, base, size, resolved, members, *held = stored
    made = [SelectionMember(*each) for each in members]
    by_index = {each.index: each for each in made}
    return Selection(identifier, base, size, by_index, resolved, tuple(held[0]) if held else None)


def _cached(stored: list[Any] | None) -> tuple[str, int, int] | None:
    if stored is None:
        return None
    return str(stored[0]), int(stored[1]), int(stored[2]) if len(stored) > 2 else 0


def _retry(stored: dict[str, Any]) -> RetrySchedule:
    return RetrySchedule(
        max_attempts=stored["max_attempts"],
        given=True,
        backoff_s=tuple(stored["backoff_s"]),
        non_retryable_error_types=tuple(stored["non_retryable_error_types"]),
        backoff_ms=tuple(stored.get("backoff_ms", ())),
    )
