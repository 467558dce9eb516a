"""Caps on runs: requests, and views for operators."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from penstock.core.limits.policies import RUN_SETTINGS, LimitSetting, PolicyChange
from penstock.core.model import Run
from penstock.core.operations.run_cap_view import RunCapView
from penstock.core.timestamps import iso
from penstock.wire.fields import INT_MAX, LeaseCap, Name
from penstock.wire.limits import queue_settings
from penstock.wire.limits.limit_requests import Expiring, HistoryLength
from penstock.wire.requests import Default, RequestModel
from penstock.wire.responses import Body

SurplusName = Literal["queue", "refuse", "cancel_running", "keep_newest", "default"]


class ReadRunCap(RequestModel):
    name: Name | None = None
    """The workflow type, task queue or concurrency key."""


class ReadRunCapHistory(ReadRunCap):
    limit: HistoryLength = 50


class ChangeRunCap(Expiring, kw_only=True):
    """A cap on runs. A setting that is left out stays as it is; `default` or null unsets it."""

    name: Name | None = None
    """The workflow type, task queue or concurrency key."""
    max_open_runs: LeaseCap | Default | UnsetType = UNSET
    """0 closes: no run starts."""
    surplus: SurplusName | UnsetType | None = UNSET
    """What becomes of a start beyond the cap; `queue` by default."""
    if_version: Annotated[int, Meta(ge=0, le=INT_MAX)] | None = None


def cap(view: RunCapView) -> Body:
    """A cap with its use."""
    most = view.policy.number(LimitSetting.OPEN_RUNS)
    return {
        "scope": view.scope.kind.value,
        "name": view.scope.value or None,
        "namespace": view.scope.namespace,
        "version": view.policy.version,
        "limits": {
            each.value: queue_settings.setting(each, view.policy.settings.get(each)) for each in RUN_SETTINGS
        },
        "counts": {
            "open_runs": view.open,
            "waiting_runs": view.waiting,
            "remaining_open_runs": None if most is None else max(0, most - view.open),
        },
        "holders": [_holder(run) for run in view.holders],
    }


def summary(view: RunCapView) -> Body:
    body = cap(view)
    del body["holders"]
    return body


def _holder(run: Run) -> Body:
    return {
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "task_queue": run.task_queue,
        "started_at": iso(run.started_at_ms),
    }


def change(each: PolicyChange) -> Body:
    """An entry of the change log."""
    body = queue_settings.change(each)
    del body["fairness_key"]
    return body
