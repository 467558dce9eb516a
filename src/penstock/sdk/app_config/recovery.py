"""Recovery settings, accepted for compatibility."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.sdk.app_config.checks import Problems, ValidatedConfig, problem, whole

MINUTE_MS = 60_000
_BOUNDS: Mapping[str, int] = {
    "claimed_stale_threshold_ms": 60 * MINUTE_MS,
    "running_stale_threshold_ms": 120 * MINUTE_MS,
    "check_interval_ms": 10 * MINUTE_MS,
    "claimer_heartbeat_interval_ms": 2 * MINUTE_MS,
    "runner_heartbeat_interval_ms": 2 * MINUTE_MS,
}
_PAIRS = (
    ("claimed_stale_threshold_ms", "claimer_heartbeat_interval_ms"),
    ("running_stale_threshold_ms", "runner_heartbeat_interval_ms"),
)


@dataclass(frozen=True, kw_only=True)
class RecoveryConfig(ValidatedConfig):
    """Validated but not used: the server's leases detect dead workers within seconds."""

    auto_requeue_stale_claimed: bool = True
    claimed_stale_threshold_ms: int = 120_000
    auto_fail_stale_running: bool = True
    running_stale_threshold_ms: int = 300_000
    check_interval_ms: int = 30_000
    claimer_heartbeat_interval_ms: int = 30_000
    runner_heartbeat_interval_ms: int = 30_000

    def problems(self) -> Problems:
        for name, most in _BOUNDS.items():
            yield from whole("bad_recovery", name, getattr(self, name), 1_000, most)
        for threshold, interval in _PAIRS:
            given, beat = getattr(self, threshold), getattr(self, interval)
            if isinstance(given, int) and isinstance(beat, int) and given < 2 * beat:
                yield problem(
                    "bad_recovery",
                    threshold,
                    f"{threshold} is at least twice {interval} ({2 * beat}), not {given}",
                    "One heartbeat that is late would count as a death",
                )
