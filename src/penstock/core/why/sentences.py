"""The English sentences of an explanation."""

from __future__ import annotations

from penstock.core.limits import run_caps
from penstock.core.limits.rate_reports import RateSource
from penstock.core.limits.rates import MICRO
from penstock.core.scheduling.gates import Gate, GateKind
from penstock.core.why.values import Constraint, ConstraintKind, Remedy, RemedyKind

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def duration_text(ms: int) -> str:
    """A duration in its largest fitting unit."""
    for size, unit in _UNITS:
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{max(0, ms)} ms"


def scope_text(scope: str) -> str:
    """A scope in words."""
    if scope.startswith(run_caps.PREFIX):
        return run_caps.scope_text(scope)
    word, _, rest = scope.partition(":")
    parts = rest.split("/")
    if word == "queue":
        return f"the task queue {'/'.join(parts[1:-1])}"
    if word == "key":
        return key_text("/".join(parts[3:]))
    if word == "namespace":
        return f"the namespace {parts[0]}{_of_kind(parts[1:])}"
    if word == "group":
        shared = "shared budget group" if parts[0] == "*" else "budget group"
        return f"the {shared} {parts[1]}{_of_kind(parts[2:])}"
    return f"the cluster{_of_kind(scope.split('/')[1:])}"


def _of_kind(parts: list[str]) -> str:
    return f" ({parts[0]} tasks)" if parts else ""


def key_text(key: str) -> str:
    return f"the key {key}" if key else "the tasks without a key"


def gate_message(gate: Gate, now_ms: int, cost: int = 0, whose: str = "this task") -> str:
    """The message of a gate that is or will be closed; `cost` is that of the task that would go next."""
    who, opens = scope_text(gate.scope), _opens(gate.opens_at_ms, now_ms)
    match gate.kind:
        case GateKind.PAUSED:
            return f"{who} is paused{opens}"
        case GateKind.COOLING:
            return f"{who} cools down after a refusal upstream{opens}"
        case GateKind.LEASES:
            return f"{who} leases {gate.used} of at most {gate.most} tasks"
        case GateKind.RATE:
            return f"{who} dispatches {_rate_words(gate)}{opens}"
        case GateKind.DISPATCHES:
            return f"{who} has used {gate.used} of its {gate.most} dispatches of this minute{opens}"
        case GateKind.COST:
            left = f"{who} has used {gate.used} of the {gate.most} units of cost of this minute"
            return f"{left}, and {whose} is estimated at {cost}{opens}"


_RATE_SOURCES = {
    RateSource.OPERATOR: "set by the operator",
    RateSource.WORKER: "reported by its workers",
    RateSource.SYSTEM: "the maximum for any queue",
}


def _rate_words(gate: Gate) -> str:
    source = _RATE_SOURCES.get(gate.rate_source)
    if gate.rate_micro is None or source is None:
        return "as many tasks a second as its rate allows"
    if not gate.rate_micro:
        return f"nothing: its rate is 0, {source}"
    return f"as many tasks a second as its rate allows: {gate.rate_micro / MICRO:g}, {source}"


def _opens(opens_at_ms: int | None, now_ms: int) -> str:
    return "" if opens_at_ms is None else f"; it opens in {duration_text(opens_at_ms - now_ms)}"


def sentence(subject: str, binding: Constraint | None) -> str:
    """The explanation in one sentence."""
    if binding is None:
        return f"{subject} is next: the first poll of a worker that fits takes it."
    if binding.kind in (ConstraintKind.NOT_WAITING, ConstraintKind.QUARANTINED, ConstraintKind.LEASED):
        return f"{subject} does not wait: {binding.message}."
    return f"{subject} waits: {binding.message}."


def count_text(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def remedy_text(remedy: Remedy, now_ms: int) -> str:
    """A remedy as an imperative."""
    scope = "" if remedy.scope is None else scope_text(remedy.scope)
    match remedy.act:
        case RemedyKind.WAIT:
            return f"wait {duration_text((remedy.at_ms or now_ms) - now_ms)}"
        case RemedyKind.RESUME:
            return f"resume {scope}"
        case RemedyKind.RAISE:
            return f"raise the limit of {scope} to {_limit(remedy)} or more"
        case RemedyKind.END_LEASES:
            whose = scope if remedy.worker is None else f"the worker {remedy.worker}"
            return f"let {count_text(remedy.count or 1, 'lease')} of {whose} end"
        case RemedyKind.CLOSE_RUNS:
            return f"let {count_text(remedy.count or 1, 'run')} of {scope} close"
        case RemedyKind.RAISE_RUN_CAP:
            return f"raise the cap on runs of {scope} to {remedy.to} or more, or unset it"
        case RemedyKind.TAKE_TURN:
            return f"wait for {count_text(remedy.count or 0, 'task')} to be dispatched"
        case RemedyKind.REGISTER | RemedyKind.RESUME_BUILD | RemedyKind.POLL:
            return _worker_remedy(remedy, scope)
        case _:
            return _plain(remedy)


def _worker_remedy(remedy: Remedy, scope: str) -> str:
    if remedy.act is RemedyKind.POLL:
        return f"bring a worker of {scope} back: it must poll"
    if remedy.act is RemedyKind.REGISTER:
        build = f" of build {remedy.build_id}" if remedy.build_id else ""
        return f"start a worker{build} that runs the type {remedy.task_type} on {scope}"
    build = f"the build {remedy.build_id}" if remedy.build_id else "the workers without a build"
    return f"resume {build} on {scope}"


def _plain(remedy: Remedy) -> str:
    """Remedies without a number."""
    match remedy.act:
        case RemedyKind.END_STEPS:
            return f"wait until {remedy.count} of the run's open items have ended; the workflow task is then retried"
        case RemedyKind.RAISE_SETTING:
            return f"raise {remedy.setting} to {remedy.to} or more on every server, and restart them"
        case RemedyKind.UNSET:
            return f"remove the retry budget of {scope_text(remedy.scope or '')}"
        case act:
            return _PLAIN[act]


_PLAIN = {
    RemedyKind.RESTORE: "bring the coordination cache back",
    RemedyKind.REPORT: "wait until its worker reports",
    RemedyKind.FIX: "deploy workflow code that does not fail",
    RemedyKind.END_RUN: "terminate the run",
    RemedyKind.REPAIR: "repair the run: it gets a new workflow task",
    RemedyKind.RESUME_RUN: "resume the run",
    RemedyKind.RESUME_ACTIVITY: "resume the activity",
    RemedyKind.MEND: "fix the activity or its input, and start it again",
    RemedyKind.SIGNAL: "send it what it waits for, or cancel it",
}


def _limit(remedy: Remedy) -> str:
    return f"{(remedy.to or 0) / MICRO:g} a second" if remedy.is_rate else str(remedy.to)
