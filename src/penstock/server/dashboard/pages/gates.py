"""The gates of a queue as people read them: which binds now, and the pipe that a task goes through.

A queue's response has its limits as `caps`, in the order in which a closed one is reported. The pipe has eight places
in the order in which a dispatch is decided, whether or not a limit is set there; a place shows its tightest limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from penstock.server.operation import Body

KINDS: Final = ("activity", "workflow")
_WORDS: Final = {
    "paused": "paused",
    "cooling": "cool-down",
    "active_leases": "leases",
    "rate": "rate",
    "dispatches_per_minute": "dispatches a minute",
    "cost_per_minute": "cost a minute",
}
_PLACES: Final = (
    ("Pause", None, frozenset({"paused"})),
    ("Cool-down", None, frozenset({"cooling"})),
    ("Cluster", "cluster", frozenset({"active_leases", "dispatches_per_minute", "cost_per_minute"})),
    ("Namespace", "namespace", frozenset({"active_leases", "dispatches_per_minute", "cost_per_minute"})),
    ("Budget group", "group", frozenset({"active_leases", "dispatches_per_minute", "cost_per_minute"})),
    ("Queue", "queue", frozenset({"active_leases", "dispatches_per_minute"})),
    ("Rate", "queue", frozenset({"rate"})),
)


class PipeGate(Struct, frozen=True):
    """One place in the pipe."""

    name: str
    scope: str
    """What the limit belongs to, as people call it."""
    used: float | None = None
    most: float | None = None
    word: str = "no limit"
    """What is written where there are no numbers."""
    opens_at: str | None = None
    is_closed: bool = False
    binds: bool = False
    """Whether it is what holds tasks back now."""
    water: str = "dry"
    """What stands here: `up` in front of the gate that binds, `bind` at it, `down` behind it, `dry`: nothing."""
    limits: int = 0
    """How many limits are in this place."""
    full_scope: str = ""
    kind: str = ""


def scope_name(scope: str) -> str:
    """The part of a scope's name that people chose: `group:default/bank` is `bank`."""
    word, _, rest = scope.partition(":")
    parts = rest.split("/")
    if word in ("queue", "group"):
        return parts[1] if len(parts) > 1 else rest
    return parts[0] if word == "namespace" else "cluster"


def binding(section: Body) -> Body | None:
    """The limit that binds: the first closed one; None if none is closed."""
    closed = [cap for cap in section["caps"] if cap["remaining"] <= 0]
    found: Body | None = closed[0] if closed else None
    return found


def binding_words(section: Body, waiting: int) -> tuple[str, str]:
    """What holds tasks back, and a detail; two empty texts if nothing does."""
    cap = binding(section)
    if cap is not None:
        return _cap_words(cap)
    if not waiting:
        return "", ""
    unserved: Sequence[Body] = section["unserved"]
    if section["status"] == "no_active_workers":
        return "no active worker", "start one"
    if unserved:
        return (
            f"no worker runs {unserved[0]['type']}",
            f"{section['unserved_ready_count']} tasks wait for one",
        )
    if section["status"] == "no_slots":
        return "no worker has slots for these tasks", ""
    if section["status"] == "saturated":
        slots = section["configured_slot_count"]
        return (
            f"worker slots {section['leased_count']} of {slots}",
            f"{section['active_worker_count']} workers",
        )
    return "", ""


def _cap_words(cap: Body) -> tuple[str, str]:
    place, name = cap["scope"].partition(":")[0], scope_name(cap["scope"])
    whose = f"{place} {name}" if place in ("group", "namespace") else place
    if cap["limit"] == "paused":
        return f"{whose} paused", ""
    if cap["limit"] == "cooling":
        return f"cool-down of {name}", "refused upstream"
    if cap["max"] is None:
        return f"{whose} {_WORDS[cap['limit']]}", ""
    return f"{whose} {_WORDS[cap['limit']]} {cap['used']:,} of {cap['max']:,}", ""


def pipe(section: Body, rate: Mapping[str, Any], waiting: int, namespace: str, queue: str) -> list[PipeGate]:
    """The eight places of a queue's pipe.

    Args:
        section: The admission of the queue's tasks of one kind.
        rate: The rate of the queue, as its description has it.
        waiting: Tasks that wait.
        namespace: The queue's namespace.
        queue: Its name.
    """
    closed = binding(section)
    found = [_place(place, section["caps"], closed, waiting, namespace, queue) for place in _PLACES]
    limit = rate.get("limit")
    if limit is not None:
        found[-1] = replace(found[-1], used=None, most=None, word=f"{limit:g} /s", limits=1, kind="rate")
    return _watered(
        [*found, _slots(section, closed, waiting)], flows=bool(waiting or section["leased_count"])
    )


def _watered(gates: Sequence[PipeGate], *, flows: bool) -> list[PipeGate]:
    at = next((place for place, gate in enumerate(gates) if gate.binds), None)
    below = "down" if flows else "dry"
    return [
        replace(gate, water="bind" if place == at else "up" if at is not None and place < at else below)
        for place, gate in enumerate(gates)
    ]


def _place(
    place: tuple[str, str | None, frozenset[str]],
    caps: Sequence[Body],
    closed: Body | None,
    waiting: int,
    namespace: str,
    queue: str,
) -> PipeGate:
    name, prefix, limits = place
    mine = [
        cap for cap in caps if cap["limit"] in limits and (prefix is None or cap["scope"].startswith(prefix))
    ]
    if not mine:
        default = {"cluster": "cluster", "namespace": namespace, "queue": queue, "group": "none"}
        word = "open" if prefix is None else "no limit"
        return PipeGate(name, default.get(prefix or "", queue), word=word)
    cap = closed if closed is not None and closed in mine else min(mine, key=lambda each: each["remaining"])
    is_closed = cap["remaining"] <= 0
    return PipeGate(
        name,
        scope_name(cap["scope"]),
        cap["used"],
        cap["max"],
        _WORDS[cap["limit"]],
        cap["opens_at"],
        is_closed,
        bool(waiting) and cap is closed,
        limits=len(mine),
        full_scope=cap["scope"],
        kind=cap["limit"],
    )


def _slots(section: Body, closed: Body | None, waiting: int) -> PipeGate:
    slots, leased = section["configured_slot_count"], section["leased_count"]
    workers = section["active_worker_count"]
    is_closed = leased >= slots or bool(section["unserved_ready_count"])
    return PipeGate(
        "Worker slots",
        "1 worker" if workers == 1 else f"{workers:,} workers",
        leased,
        slots,
        word="slots in use",
        is_closed=is_closed,
        binds=bool(waiting) and is_closed and closed is None,
        limits=1,
        kind="slots",
    )
