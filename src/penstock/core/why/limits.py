"""Limits as constraints: gates and holds of fairness keys, with their remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.limits.admission import queue_scope
from penstock.core.limits.policies import KeyState, SettingValue
from penstock.core.limits.rates import MICRO
from penstock.core.model import Queue
from penstock.core.scheduling.dispatch import KeyHold, KeyHoldReason, key_hold
from penstock.core.scheduling.gates import Gate, GateKind
from penstock.core.why.sentences import duration_text, gate_message, key_text
from penstock.core.why.values import Constraint, ConstraintKind, Remedy, RemedyKind

_KINDS = {
    GateKind.PAUSED: ConstraintKind.PAUSED,
    GateKind.COOLING: ConstraintKind.COOLING,
    GateKind.LEASES: ConstraintKind.LEASES,
    GateKind.RATE: ConstraintKind.RATE,
    GateKind.DISPATCHES: ConstraintKind.DISPATCHES,
    GateKind.COST: ConstraintKind.COST,
}


def of_gate(
    gate: Gate, pauses: Mapping[str, SettingValue], now_ms: int, cost: int = 0, whose: str = "this task"
) -> Constraint:
    """The constraint of a gate that is closed, or will be before the task's turn."""
    pause = pauses.get(gate.scope) if gate.kind is GateKind.PAUSED else None
    if pause is not None:
        gate = replace(gate, opens_at_ms=pause.ends_at_ms)
    return Constraint(
        _KINDS[gate.kind],
        gate_message(gate, now_ms, cost, whose) + _by(pause),
        gate.scope,
        gate.most,
        gate.used,
        gate.opens_at_ms,
        tuple(_frees(gate, cost)),
        gate.is_closed,
    )


def _by(pause: SettingValue | None) -> str:
    if pause is None:
        return ""
    return f" (by {pause.author}{f': {pause.reason}' if pause.reason else ''})"


def _frees(gate: Gate, cost: int) -> Sequence[Remedy]:
    """The remedies that open a gate, each sufficient."""
    waits = [] if gate.opens_at_ms is None else [Remedy(RemedyKind.WAIT, gate.scope, at_ms=gate.opens_at_ms)]
    used = gate.used or 0
    match gate.kind:
        case GateKind.PAUSED:
            return [Remedy(RemedyKind.RESUME, gate.scope), *waits]
        case GateKind.COOLING:
            return waits
        case GateKind.LEASES:
            over = used - (gate.most or 0) + 1
            ends = [Remedy(RemedyKind.END_LEASES, gate.scope, count=max(1, over))] if gate.most else []
            return [*ends, Remedy(RemedyKind.RAISE, gate.scope, to=used + 1)]
        case GateKind.RATE:
            return waits or [Remedy(RemedyKind.RAISE, gate.scope, to=MICRO, is_rate=True)]
        case GateKind.DISPATCHES:
            return [*waits, Remedy(RemedyKind.RAISE, gate.scope, to=used + 1)]
        case GateKind.COST:
            return [*waits, Remedy(RemedyKind.RAISE, gate.scope, to=used + max(1, cost))]


def of_key(queue: Queue, state: KeyState, weight_milli: int, now_ms: int) -> Constraint | None:
    """The constraint of the task's fairness key, if it is held."""
    stop = key_hold(queue.rules, state, weight_milli, now_ms)
    if stop is None:
        return None
    scope = key_scope(queue, state.key)
    match stop.reason:
        case KeyHoldReason.PAUSED:
            message = f"{key_text(state.key)} is paused"
            return Constraint(
                ConstraintKind.PAUSED, message, scope, frees=(Remedy(RemedyKind.RESUME, scope),)
            )
        case KeyHoldReason.RATE:
            return _key_rate(stop, state, scope, now_ms)
        case KeyHoldReason.RUNNING:
            return _key_running(stop, state, scope)


def key_scope(queue: Queue, key: str) -> str:
    """The name of a fairness key as a scope."""
    return f"key:{queue_scope(queue.namespace, queue.name, queue.kind).removeprefix('queue:')}/{key}"


def _key_rate(stop: KeyHold, state: KeyState, scope: str, now_ms: int) -> Constraint:
    opens = "" if stop.open_at_ms is None else f"; it opens in {duration_text(stop.open_at_ms - now_ms)}"
    wait = Remedy(RemedyKind.WAIT, scope, at_ms=stop.open_at_ms)
    return Constraint(
        ConstraintKind.KEY_RATE,
        f"{key_text(state.key)} has reached its rate limit{opens}",
        scope,
        opens_at_ms=stop.open_at_ms,
        frees=(Remedy(RemedyKind.RAISE, scope, to=MICRO, is_rate=True) if stop.open_at_ms is None else wait,),
    )


def _key_running(stop: KeyHold, state: KeyState, scope: str) -> Constraint:
    most = stop.held_at or 0
    over = state.running - most + 1
    ends = (Remedy(RemedyKind.END_LEASES, scope, count=over),) if most else ()
    return Constraint(
        ConstraintKind.KEY_RUNNING,
        f"{key_text(state.key)} runs {state.running} of at most {most} tasks",
        scope,
        most,
        state.running,
        frees=(*ends, Remedy(RemedyKind.RAISE, scope, to=state.running + 1)),
    )
