"""The flags for priority, fairness key and weight of a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from penstock.cli.inputs import WeightParam, given

_OPTIONS = (
    click.option(
        "--priority-key",
        type=click.IntRange(1, 5),
        metavar="N",
        help="1 is dispatched first, 5 last; 3 if omitted. These are the levels 1, 3, 5, 7 and 9.",
    ),
    click.option(
        "--priority",
        type=click.IntRange(0, 9),
        metavar="N",
        help="The priority level, 0 (first) to 9, instead of --priority-key; 5 if omitted.",
    ),
    click.option("--fairness-key", metavar="KEY", help="Fairness key, such as a tenant or customer."),
    click.option(
        "--fairness-weight",
        type=WeightParam(),
        help="The key's share relative to other keys, 0.001 to 1000; 1 if omitted.",
    ),
)


def with_priority_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags to a command, which receives their values as `priority_options` for the request body."""

    @wraps(function)
    def command(
        *args: Any,
        priority_key: int | None,
        priority: int | None,
        fairness_key: str | None,
        fairness_weight: float | None,
        **rest: Any,
    ) -> Any:
        if priority_key is not None and priority is not None:
            raise click.UsageError("--priority-key and --priority are alternatives; give one of them.")
        priority_options = given(
            priority=priority,
            priority_key=priority_key,
            fairness_key=fairness_key,
            fairness_weight=fairness_weight,
        )
        return function(*args, priority_options=priority_options, **rest)

    decorated: Callable[..., Any] = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
