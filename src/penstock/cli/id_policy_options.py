"""The flags for starts that may meet another run: one that has their id, or their unique key."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from penstock.cli.inputs import SecondsParam, given
from penstock.cli.output.exits import echo_err

_OPTIONS = (
    click.option(
        "--id-reuse-policy",
        type=click.Choice(["allow_duplicate", "allow_duplicate_failed_only", "reject_duplicate"]),
        help="Whether the id of a closed run may be reused; allow_duplicate if omitted.",
    ),
    click.option(
        "--id-conflict-policy",
        type=click.Choice(["fail", "use_existing", "terminate_existing"]),
        help="What to do if an open run has the id; fail if omitted.",
    ),
)


UNIQUE_OPTIONS = (
    click.option(
        "--unique-key",
        metavar="KEY",
        help="Start nothing if another run of the type holds this key; show that run.",
    ),
    click.option(
        "--unique-until",
        type=click.Choice(["done", "started"]),
        help="How long the run holds the key: done if omitted.",
    ),
    click.option(
        "--unique-conflict-policy",
        type=click.Choice(["use_existing", "fail"]),
        help="If the key is held: use that run, or fail; use_existing if omitted.",
    ),
    click.option(
        "--debounce",
        "debounce_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="Begin when no other start of the key came for so long; the latest input counts.",
    ),
    click.option(
        "--debounce-max",
        "debounce_max_seconds",
        type=SecondsParam(),
        metavar="TIME",
        help="Begin at the latest so long after the first start; ten times --debounce if omitted.",
    ),
)


def unique_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of unique keys to a command, which receives their values as fields of the request body."""
    decorated = function
    for option in reversed(UNIQUE_OPTIONS):
        decorated = option(decorated)
    return decorated


def note_existing(outcome: str | None) -> None:
    """Say on stderr that a start began nothing."""
    if outcome == "returned_existing_active":
        echo_err("It was already running; nothing was started.")
    if outcome == "debounced":
        echo_err("It waits for starts of its key already; it took this input.")


def id_policy_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags to a command, which receives their values as `id_policies` for the request body."""

    @wraps(function)
    def command(*args: Any, id_reuse_policy: str | None, id_conflict_policy: str | None, **rest: Any) -> Any:
        policies = given(id_reuse_policy=id_reuse_policy, id_conflict_policy=id_conflict_policy)
        return function(*args, id_policies=policies, **rest)

    decorated: Callable[..., Any] = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def with_default(policies: dict[str, Any], named: str | None, duplicate_policy: str | None) -> dict[str, Any]:
    """The policies with our default, unless the start names no id or sets the contract's own policy."""
    if named is None or duplicate_policy is not None:
        return policies
    return {"id_reuse_policy": "allow_duplicate"} | policies
