"""The flags for starts whose id is already in use."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from penstock.cli.inputs import given

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
