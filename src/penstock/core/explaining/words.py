"""The sentences of an explanation."""

from __future__ import annotations

from penstock.core.explaining.values import Constraint, Kind
from penstock.core.scheduling.gates import Gate, GateKind

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def span(ms: int) -> str:
    """A length of time in its largest fitting unit."""
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{max(0, ms)} ms"


def scope_words(scope: str) -> str:
    """A scope by the words that people use for it."""
    word, _, rest = scope.partition(":")
    parts = rest.split("/")
    if word == "queue":
        return f"the task queue {'/'.join(parts[1:-1])}"
    if word == "namespace":
        return f"the namespace {parts[0]}{_of_kind(parts[1:])}"
    if word == "group":
        shared = "shared budget group" if parts[0] == "*" else "budget group"
        return f"the {shared} {parts[1]}{_of_kind(parts[2:])}"
    return f"the cluster{_of_kind(scope.split('/')[1:])}"


def _of_kind(parts: list[str]) -> str:
    return f" ({parts[0]} tasks)" if parts else ""


def key_words(key: str) -> str:
    return f"the key {key}" if key else "the tasks without a key"


def gate_message(gate: Gate, now_ms: int, cost: int = 0) -> str:
    """What a gate says, closed or soon to be."""
    who, opens = scope_words(gate.scope), _opens(gate.opens_at_ms, now_ms)
    match gate.kind:
        case GateKind.PAUSED:
            return f"{who} is paused{opens}"
        case GateKind.COOLING:
            return f"{who} cools down after a refusal upstream{opens}"
        case GateKind.LEASES:
            return f"{who} leases {gate.used} of at most {gate.most} tasks"
        case GateKind.RATE:
            return f"{who} gives out as many tasks a second as its rate allows{opens}"
        case GateKind.DISPATCHES:
            return f"{who} has used {gate.used} of its {gate.most} dispatches of this minute{opens}"
        case GateKind.COST:
            left = f"{who} has used {gate.used} of the {gate.most} units of cost of this minute"
            return f"{left}, and this task is estimated at {cost}{opens}"


def _opens(opens_at_ms: int | None, now_ms: int) -> str:
    return "" if opens_at_ms is None else f"; it opens in {span(opens_at_ms - now_ms)}"


def sentence(subject: str, binding: Constraint | None) -> str:
    """The answer in one sentence."""
    if binding is None:
        return f"{subject} is next: the first poll of a worker that fits takes it."
    if binding.kind in (Kind.NOT_WAITING, Kind.LEASED):
        return f"{subject} does not wait: {binding.message}."
    return f"{subject} waits: {binding.message}."


def counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
