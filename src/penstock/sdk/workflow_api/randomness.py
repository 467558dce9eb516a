"""Random numbers and ids of a run: the same in every replay."""

from __future__ import annotations

import random as random_module
import uuid

from penstock.sdk.workflow_port.port import current

_RANDOM_BITS = 74
_LOW_BITS = 62


def random() -> random_module.Random:
    """Return a random number generator that gives the same numbers in every replay."""
    port = current()
    port.check_writable("workflow.random()")
    return port.random


def new_random(name: str | None = None) -> random_module.Random:
    """Return a generator of its own, seeded by that of the run: what one part of the code draws changes no other.

    It gives the same numbers in every replay.

    Args:
        name: mixed into the seed.
    """
    port = current()
    port.check_writable("workflow.new_random()")
    seed = port.random.getrandbits(64)
    return random_module.Random(seed if name is None else f"{seed} {name}")


def uuid4() -> uuid.UUID:
    """Return a UUID that is the same in every replay."""
    return current().uuid4()


def uuid7() -> uuid.UUID:
    """Return a UUID of version 7, whose order is that of the run's time. It is the same in every replay."""
    port = current()
    port.check_writable("workflow.uuid7()")
    milliseconds = round(port.now.timestamp() * 1000)
    drawn = port.random.getrandbits(_RANDOM_BITS)
    high, low = drawn >> _LOW_BITS, drawn & ((1 << _LOW_BITS) - 1)
    return uuid.UUID(int=(milliseconds << 80) | (7 << 76) | (high << 64) | (2 << 62) | low)
