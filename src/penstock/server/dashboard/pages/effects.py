"""What a change would do, from the numbers of the moment, in sentences that a person reads before making it.

These are consequences of the rules, not simulations: how many more tasks may start at once, which limit comes next,
whose share grows. Where a limit is lowered below what is in use, nothing running is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.server.dashboard.formats import count, duration, percent
from penstock.server.dashboard.pages.gates import scope_name
from penstock.server.operation import Body


class Effect(Struct, frozen=True):
    """One consequence."""

    text: str
    tone: str = "flow"


def of_cap(section: Body, waiting: int, new: int | None, scope: str) -> list[Effect]:
    """A new cap on the leases of a queue; None removes it."""
    running = section["leased_count"]
    others = [
        cap for cap in section["caps"] if not (cap["scope"] == scope and cap["limit"] == "active_leases")
    ]
    if new == 0:
        return [
            Effect(f"Nothing more is dispatched; {_tasks(running)} that run now finish normally.", "warn")
        ]
    if new is not None and new < running:
        over = running - new
        return [
            Effect(
                f"{_tasks(over)} more than {count(new)} run now and finish normally. Nothing starts until fewer than "
                f"{count(new)} run.",
                "warn",
            )
        ]
    room = None if new is None else new - running
    return _starts(section, waiting, room, others)


def _starts(section: Body, waiting: int, room: int | None, others: Sequence[Body]) -> list[Effect]:
    slots = section["available_slot_count"]
    limits = [
        (cap["remaining"], f"{scope_name(cap['scope'])} ({cap['limit'].replace('_', ' ')})") for cap in others
    ]
    limits.append((slots, "worker slots"))
    left, next_limit = min(limits)
    starting = min(waiting, left, waiting if room is None else room)
    if not waiting:
        return [Effect("Nothing waits, so nothing starts now.")]
    found = [
        Effect(f"{_tasks(starting)} of {count(waiting)} that wait may start at once." if starting else "")
    ]
    if left < (waiting if room is None else min(room, waiting)):
        found.append(Effect(f"The next limit is {next_limit}: it leaves room for {count(left)}.", "warn"))
    return [each for each in found if each.text]


def of_key_cap(waiting: int, running: int | None, new: int | None) -> list[Effect]:
    """A new cap on the leases of a key; None removes it. What it runs is None where nobody has counted that yet."""
    if new is None:
        return [Effect("No cap of its own holds tasks of this key back.")]
    if new == 0:
        return [Effect("Nothing more of this key is dispatched; what runs finishes normally.", "warn")]
    if running is None:
        return [Effect(f"At most {_tasks(new)} of this key run at a time, counting those that run already.")]
    if running >= new:
        return [
            Effect(
                f"{_tasks(running)} of this key run now. Nothing starts until fewer than {count(new)} run.",
                "warn",
            )
        ]
    return [
        Effect(
            f"{count(min(waiting, new - running))} of {_tasks(waiting)} that wait may start, as other limits allow."
        )
    ]


def of_rate(waiting: int, new: float | None, what: str = "this queue") -> list[Effect]:
    """A new rate of a queue, or of a key; None removes it."""
    if new is None:
        return [Effect(f"No rate of its own holds tasks of {what} back.")]
    if new == 0:
        return [Effect("Nothing more is dispatched; what runs finishes normally.", "warn")]
    takes = f" The {_tasks(waiting)} that wait take at least {duration(waiting / new)}." if waiting else ""
    return [Effect(f"At most {new:g} tasks start in a second.{takes}")]


def of_minute(new: int | None) -> list[Effect]:
    """A new number of dispatches in a minute; None removes it."""
    if new is None:
        return [Effect("No number of dispatches in a minute holds its tasks back.")]
    if new == 0:
        return [Effect("Nothing more is dispatched; what runs finishes normally.", "warn")]
    return [Effect(f"At most {count(new)} of its tasks start in a minute.")]


def of_window(window: str) -> list[Effect]:
    """Another meaning of a minute, for limits of dispatches in one."""
    if window == "sliding":
        text = "Dispatches are counted in any sixty seconds: never more than the limit, on the turn of a minute either."
    elif window == "minute":
        text = "Dispatches are counted from each full minute on: around its turn up to twice the limit may start."
    else:
        text = "Minutes are counted as declared."
    return [Effect(text)]


def of_weight(keys: Sequence[Body], key: str, new: float | None) -> list[Effect]:
    """A new weight of a key; None returns to the weight that its tasks carry."""
    mine = next((each for each in keys if each["fairness_key"] == key), None)
    if mine is None or not mine["share_asked"]:
        return [Effect("The key has no work now; the weight counts from its next task on.")]
    if new is None:
        return [Effect("The key gets the weight that its tasks carry.")]
    total = mine["weight"] / mine["share_asked"]
    after = new / (total - mine["weight"] + new)
    found = [
        Effect(
            f"While the same keys have work, its share goes from {percent(mine['share_asked'])} to {percent(after)}."
        )
    ]
    rest = 1 - mine["share_asked"]
    if rest > 0 and abs(after - mine["share_asked"]) > 0.001:
        change = (1 - after) / rest
        word = "shrinks" if change < 1 else "grows"
        found.append(
            Effect(f"The share of every other key {word} to {percent(change)} of what it is.", "warn")
        )
    return found


def of_pause(waiting: int, running: int) -> list[Effect]:
    """A pause."""
    return [
        Effect(f"{_tasks(waiting)} that wait, and all that arrive, are held until it is resumed.", "warn"),
        Effect(f"{_tasks(running)} that run finish normally."),
    ]


def of_resume(waiting: int) -> list[Effect]:
    """The end of a pause."""
    return [Effect(f"{_tasks(waiting)} that wait are dispatched again, as other limits allow.")]


def _tasks(number: int) -> str:
    return "1 task" if number == 1 else f"{number:,} tasks"
