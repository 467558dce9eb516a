"""`RecoveryConfig`: recovery thresholds of horsies, each refused with the setting that takes its place."""

from __future__ import annotations

from dataclasses import dataclass, fields

from penstock.sdk.app_config.checks import Problems, ValidatedConfig, problem

_REPLACED_BY = {
    "auto_requeue_stale_claimed": (
        "The server always requeues a task whose lease has ended; retry=RetryPolicy(maximum_attempts=1) of the task"
        " runs it at most once"
    ),
    "claimed_stale_threshold_ms": "Set claim_lease_ms of AppConfig: a claimed task is requeued when its claim ends",
    "auto_fail_stale_running": (
        "The attempt of a dead worker always fails, and retry=RetryPolicy(…) of the task decides what follows"
    ),
    "running_stale_threshold_ms": "Set heartbeat_timeout of the task, or its timeout",
    "check_interval_ms": "There is nothing to set: the server acts within two seconds after a lease has ended",
    "claimer_heartbeat_interval_ms": (
        "Workers renew their claims in time for claim_lease_ms of AppConfig; the server takes a worker for dead after"
        " DW_WORKER_STALE_AFTER_SECONDS"
    ),
    "runner_heartbeat_interval_ms": "Workers send heartbeats in time for heartbeat_timeout of the task",
}


@dataclass(frozen=True, kw_only=True)
class RecoveryConfig(ValidatedConfig):
    """Takes no values: the server recovers the tasks of dead workers by their leases.

    The fields exist so that code written for horsies gets an error that names the setting to use instead
    (`ConfigurationError`, kind `bad_recovery`) rather than a value without effect.
    """

    auto_requeue_stale_claimed: bool | None = None
    claimed_stale_threshold_ms: int | None = None
    auto_fail_stale_running: bool | None = None
    running_stale_threshold_ms: int | None = None
    check_interval_ms: int | None = None
    claimer_heartbeat_interval_ms: int | None = None
    runner_heartbeat_interval_ms: int | None = None

    def problems(self) -> Problems:
        for each in fields(self):
            if getattr(self, each.name) is not None:
                message = f"RecoveryConfig: {each.name} is not supported"
                yield problem("bad_recovery", each.name, message, _REPLACED_BY[each.name])
