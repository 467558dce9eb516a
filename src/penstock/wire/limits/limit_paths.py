"""Limits by path, as `queue:invoices.max_active_leases`: the requests of the API that set them.

Change sets and the simulator share these names, so that what was rehearsed is what is applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from penstock.core.limits.policies import LimitSetting
from penstock.errors import InvalidInput, Reason, ValidationFailed
from penstock.schema.nearest import nearest
from penstock.wire.limits.limit_requests import ChangeGroupLimits, ChangeOwnLimits, ChangeQueueLimits
from penstock.wire.requests import ConfigureQueue, RequestModel

_NOT_LIMITS = frozenset({"reason", "if_version", "expires_in_seconds", "ends_at", "task_queue_type"})
_IN_CONFIG = {"max_active_leases": "max_running", "max_active_leases_per_queue": "max_running"}
_ALIASES = {"max_active_leases": "max_active_leases_per_queue"}
"""A queue's cap on leases has the name of the other scopes here, too."""
WEIGHTS, KEYS = "weights", "keys"


class LimitTarget(Struct, frozen=True, order=True):
    """What a setting belongs to: a queue, a budget group, the namespace or the cluster."""

    scope: str
    """`queue`, `group`, `namespace` or `cluster`."""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.scope}:{self.name}" if self.name else self.scope


class LimitSettings(Struct, frozen=True):
    """Settings of one target in the words of the HTTP API, in force from a moment on."""

    target: LimitTarget
    settings: Mapping[str, Any]
    at_ms: int = 0


def requests_for(limits: LimitSettings) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The path and body of each request that brings these settings into force.

    Raises:
        InvalidInput: the target has no such setting.
    """
    target, settings = limits.target, dict(limits.settings)
    for name in settings:
        check_setting(target, name)
        if name == LimitSetting.CHANGE_APPROVALS:
            raise InvalidInput(
                Reason.VALIDATION_FAILED,
                f"{target}.{name} says who approves changes; it changes nothing of a load. Leave it out.",
            )
    if target.scope != "queue":
        yield _path(target), settings
        return
    weights, keys = settings.pop(WEIGHTS, {}), settings.pop(KEYS, {})
    kind = settings.pop("task_queue_type", "activity")
    config = {name: value for name, value in settings.items() if name in _fields(ConfigureQueue)}
    own = {_ALIASES.get(name, name): value for name, value in settings.items() if name not in config}
    config |= _weights(weights)
    config |= {"keys": keys} if keys else {}
    base = f"/task-queues/{quote(target.name, safe='')}"
    if config:
        yield f"{base}/config", {"task_queue_type": kind} | config
    if own:
        yield f"{base}/limits", {"task_queue_type": kind} | own


def queue_settings_body(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a queue as one change of its configuration; a weight that is null is unset."""
    body = {_IN_CONFIG.get(name, name): value for name, value in settings.items() if name != WEIGHTS}
    weights = settings.get(WEIGHTS, {})
    if not isinstance(weights, dict):
        raise ValidationFailed({WEIGHTS: ["must be an object with a weight for each key"]})
    return {"task_queue_type": "activity", **body, **_weights(weights)}


def _weights(weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights of keys as fields of a request; None unsets one."""
    given = {key: weight for key, weight in weights.items() if weight is not None}
    unset = [key for key in weights if key not in given]
    return ({"set_fairness_weight_overrides": given} if given else {}) | (
        {"unset_fairness_weight_overrides": unset} if unset else {}
    )


def check_setting(target: LimitTarget, name: str) -> None:
    """Raise `InvalidInput` with the nearest names if the target has no such setting."""
    known = _known(target)
    if name in known:
        return
    guesses = nearest(name, known)
    advice = f"did you mean {' or '.join(guesses)}?" if guesses else f"there are: {', '.join(sorted(known))}."
    raise InvalidInput(Reason.VALIDATION_FAILED, f"{target} has no setting {name!r}; {advice}")


def _known(target: LimitTarget) -> frozenset[str]:
    if target.scope == "queue":
        names = _fields(ConfigureQueue) | _fields(ChangeQueueLimits)
        return names | {WEIGHTS, KEYS, "task_queue_type", *_ALIASES}
    return _fields(ChangeGroupLimits if target.scope == "group" else ChangeOwnLimits)


def _fields(shape: type[RequestModel]) -> frozenset[str]:
    return frozenset(field.encode_name for field in msgspec.structs.fields(shape)) - _NOT_LIMITS


def _path(target: LimitTarget) -> str:
    if target.scope == "group":
        return f"/budget-groups/{quote(target.name, safe='')}"
    return "/namespaces/default/limits" if target.scope == "namespace" else "/cluster/limits"
