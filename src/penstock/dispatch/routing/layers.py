"""Merges layers of options: for scalars the highest layer wins, error type names accumulate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import attrgetter
from typing import Any

from penstock.dispatch.options import (
    NO_LONGEST_PAUSE,
    RETRY_SCALARS,
    TIMEOUTS,
    DispatchOptions,
    Layer,
    RetryPolicyConfigOverlay,
)
from penstock.dispatch.retry import RetryPolicy
from penstock.schema.kinds import UNLIMITED

OWN_QUEUE = "workflow's own queue"
CALL_SITE = "call site"
_RETRY_NAMES = tuple(f"retry.{name}" for name in RETRY_SCALARS)
_timeouts: Callable[[Layer], tuple[Any, ...]] = attrgetter(*TIMEOUTS)
_retry_scalars: Callable[[RetryPolicyConfigOverlay], tuple[Any, ...]] = attrgetter(*RETRY_SCALARS)


@dataclass(frozen=True, slots=True)
class RankedLayer:
    """One layer with its labels in the provenance and its path in the file."""

    label: str
    giver: str
    layer: Layer
    path: tuple[str | int, ...] = ()

    def scalars(self) -> dict[str, Any]:
        """The scalars that the layer sets, by their names in the provenance."""
        pairs = list(zip(TIMEOUTS, _timeouts(self.layer), strict=True))
        if self.layer.retry is not None:
            pairs += zip(_RETRY_NAMES, _retry_scalars(self.layer.retry), strict=True)
        return {name: value for name, value in pairs if value is not None}

    def path_of(self, name: str) -> tuple[str | int, ...]:
        """The path of a scalar in the file; empty for options given in code."""
        if not self.path:
            return ()
        if name.startswith("retry."):
            return (*self.path, "retry_policy_config", name.removeprefix("retry."))
        return (*self.path, f"default_activity_{name}" if self.label == "baseline" else name)

    @property
    def names(self) -> tuple[str, ...]:
        return self.layer.retry.non_retryable_error_types_extra if self.layer.retry else ()


def merge(queue: str | None, queue_source: str, stack: Sequence[RankedLayer]) -> DispatchOptions:
    """The options that a stack of layers makes, lowest first."""
    values: dict[str, Any] = {}
    provenance = {"task_queue": queue_source}
    names: dict[str, None] = {}
    givers: list[str] = []
    for ranked in stack:
        if ranked.layer.task_queue is not None:
            queue, provenance["task_queue"] = ranked.layer.task_queue, ranked.label
        for name, value in ranked.scalars().items():
            values[name], provenance[name] = value, ranked.label
        if given := ranked.names:
            names.update(dict.fromkeys(given))
            givers.append(ranked.giver)
    provenance["retry.non_retryable"] = " + ".join(givers) or "none"
    timeouts = {name: values[name] for name in TIMEOUTS if name in values}
    policy = _policy(values, tuple(names))
    return DispatchOptions(task_queue=queue, retry_policy=policy, provenance=provenance, **timeouts)


def _policy(values: dict[str, Any], names: tuple[str, ...]) -> RetryPolicy:
    first: timedelta = values["retry.initial_interval"]
    longest = values["retry.maximum_interval"]
    attempts = values["retry.maximum_attempts"]
    if longest == UNLIMITED:
        longest = max(NO_LONGEST_PAUSE, first)
    if attempts != 1:
        longest = max(longest, first)  # code and file may contradict each other; a file alone was checked
    return RetryPolicy(
        initial_interval=first,
        backoff_coefficient=values["retry.backoff_coefficient"],
        maximum_interval=longest,
        maximum_attempts=0 if attempts == UNLIMITED else attempts,
        non_retryable_error_types=names,
    )
