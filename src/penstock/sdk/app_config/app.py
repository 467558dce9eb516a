"""`AppConfig`: the queues of an app, its caps, and how its workers claim tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from penstock.schema.kinds import Kind, Whole
from penstock.sdk.app_config.broker import PostgresConfig
from penstock.sdk.app_config.checks import Problems, ValidatedConfig, is_a, problem
from penstock.sdk.app_config.queues import CAP_MOST, CustomQueueConfig, QueueMode
from penstock.sdk.app_config.recovery import RecoveryConfig

DEFAULT_QUEUE = "default"
LEASE_LEAST_MS, LEASE_MOST_MS = 100, 600_000
"""The bounds that a server accepts for the lease of a prefetched task."""
RENEW_AGE_MS = 180_000
PREFETCH_MOST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class AppConfig(ValidatedConfig):
    """The configuration of an app, validated on creation. All errors are reported together.

    Without `prefetch_buffer` workers claim only what they can run at once, and caps count claimed and running tasks
    (hard mode). With it they prefetch, for `claim_lease_ms` at a time; running tasks stay within the caps, because a
    prefetched task is counted when it starts (soft mode).
    """

    queue_mode: QueueMode = QueueMode.DEFAULT
    """DEFAULT has one queue, `default`; CUSTOM has `custom_queues`."""
    custom_queues: Sequence[CustomQueueConfig] | None = None
    broker: PostgresConfig | None = None
    """The server to connect to, unless the app names one."""
    cluster_wide_cap: int | None = None
    """Maximum number of running tasks of all queues on all workers; None requests no cap.

    A cap that another worker or an operator has set then stays in force.
    """
    caps_version: int = 0
    """Version of the caps in this configuration (`cluster_wide_cap`, and `max_concurrency` of each queue).

    Increase it when you raise a cap: a worker that starts may lower a cap at any time, but raises one only with a
    higher version than the recorded one; with a lower version it changes nothing.
    """
    prefetch_buffer: int = 0
    """Tasks that a worker claims beyond those that it can run; 0 does not prefetch."""
    claim_lease_ms: int | None = None
    """Lease of a prefetched task in milliseconds; required with `prefetch_buffer`."""
    max_claim_renew_age_ms: int | None = None
    """A prefetched task that has not started after this time is handed back; None is three minutes."""
    recovery: RecoveryConfig | None = None
    """Accepted and not used."""

    checked: ClassVar[Mapping[str, tuple[str, Kind]]] = {
        "cluster_wide_cap": ("bad_cap", Whole(1, CAP_MOST)),
        "caps_version": ("bad_cap", Whole(0)),
        "prefetch_buffer": ("bad_prefetch", Whole(0, PREFETCH_MOST)),
        "claim_lease_ms": ("bad_lease", Whole(LEASE_LEAST_MS, LEASE_MOST_MS)),
        "max_claim_renew_age_ms": ("bad_lease", Whole(1)),
    }

    def __post_init__(self) -> None:
        if _is_listing(self.custom_queues):
            object.__setattr__(self, "custom_queues", tuple(self.custom_queues or ()))
        super().__post_init__()

    def problems(self) -> Problems:
        yield from self._of_types()
        yield from self._of_queues()
        yield from self._of_caps()
        yield from self._of_claims()

    @property
    def is_soft(self) -> bool:
        """Whether workers prefetch."""
        return self.prefetch_buffer > 0

    @property
    def queues(self) -> list[CustomQueueConfig]:
        """The queues in the order in which they are served: by priority, then as written."""
        if self.queue_mode is QueueMode.DEFAULT:
            return [CustomQueueConfig(name=DEFAULT_QUEUE, priority=100, max_concurrency=None)]
        return sorted(self.custom_queues or (), key=lambda each: each.priority)

    @property
    def renew_age_ms(self) -> int:
        """The maximum time for which a prefetched task is renewed."""
        return self.max_claim_renew_age_ms or max(RENEW_AGE_MS, self.claim_lease_ms or 0)

    def claims_most(self, processes: int, asked: int = 0) -> int:
        """Return how many prefetched tasks a worker may hold; 0 requests the default."""
        return asked or processes + self.prefetch_buffer

    def _of_types(self) -> Problems:
        wanted = (
            ("broker", PostgresConfig, "PostgresConfig(database_url=…)"),
            ("recovery", RecoveryConfig, "RecoveryConfig(…)"),
        )
        for name, kind, written in wanted:
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                yield problem("bad_value", name, f"{name} is {written}, not {value!r}")

    def _of_queues(self) -> Problems:
        if not is_a(self.queue_mode, QueueMode):
            text = "queue_mode is QueueMode.DEFAULT or QueueMode.CUSTOM"
            yield problem("bad_queue_mode", "queue_mode", f"{text}, not {self.queue_mode!r}")
            return
        if self.queue_mode is QueueMode.DEFAULT:
            if self.custom_queues is not None:
                yield problem(
                    "bad_queue_mode",
                    "custom_queues",
                    "custom_queues are given, and queue_mode is DEFAULT",
                    "Leave them out, or set queue_mode=QueueMode.CUSTOM",
                )
            return
        if self.custom_queues is not None and not isinstance(self.custom_queues, tuple):
            text = f"custom_queues is a list of CustomQueueConfig(…), not {self.custom_queues!r}"
            yield problem("bad_queue_mode", "custom_queues", text)
            return
        if not self.custom_queues:
            yield problem(
                "bad_queue_mode",
                "custom_queues",
                "queue_mode is CUSTOM, and there are no custom_queues",
                "Give at least one: custom_queues=[CustomQueueConfig(name=…)]",
            )
            return
        yield from self._of_names()

    def _of_names(self) -> Problems:
        assert self.custom_queues is not None
        for each in self.custom_queues:
            if not is_a(each, CustomQueueConfig):
                yield problem(
                    "bad_queue_mode", "custom_queues", f"custom_queues has CustomQueueConfig(…), not {each!r}"
                )
                return
        for name, times in Counter(each.name for each in self.custom_queues).items():
            if times > 1:
                yield problem(
                    "bad_queue_mode",
                    "custom_queues",
                    f"custom_queues names {name!r} {times} times",
                    "Names are unique",
                )

    def _of_caps(self) -> Problems:
        yield from self.problems_of("cluster_wide_cap", "caps_version")
        cap = self.cluster_wide_cap
        if cap is not None and is_a(self.prefetch_buffer, int) and self.prefetch_buffer > 0:
            yield problem(
                "bad_cap",
                "cluster_wide_cap",
                "cluster_wide_cap and prefetch_buffer cannot be combined",
                "For a cap of all queues leave prefetch_buffer out",
            )

    def _of_claims(self) -> Problems:
        ahead, lease = self.prefetch_buffer, self.claim_lease_ms
        unfit = list(self.problems_of("prefetch_buffer"))
        yield from unfit
        yield from self.problems_of("claim_lease_ms")
        if not unfit and ahead > 0 and lease is None:
            yield problem(
                "bad_lease",
                "claim_lease_ms",
                f"prefetch_buffer is {ahead}, and claim_lease_ms is missing",
                "Say how long a claim lasts, such as claim_lease_ms=5000",
            )
        if not unfit and ahead == 0 and lease is not None:
            yield problem(
                "bad_lease",
                "claim_lease_ms",
                f"claim_lease_ms is {lease}, and prefetch_buffer is 0: nothing is claimed ahead",
                "Leave it out, or set prefetch_buffer=…",
            )
        yield from self._of_age(lease)

    def _of_age(self, lease: object) -> Problems:
        age = self.max_claim_renew_age_ms
        unfit = list(self.problems_of("max_claim_renew_age_ms"))
        yield from unfit
        if not unfit and age is not None and isinstance(lease, int) and age < lease:
            yield problem(
                "bad_lease",
                "max_claim_renew_age_ms",
                f"max_claim_renew_age_ms is at least claim_lease_ms ({lease}), not {age}",
            )


def _is_listing(value: object) -> bool:
    """Whether the value is an ordered collection. It is stored as a tuple, so that later changes have no effect."""
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | Set)
