"""The plan of a worker program: queues, concurrency and options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.cli.output.exits import echo_err
from penstock.cli.output.screen import Screen, plain

if TYPE_CHECKING:
    from penstock.cli.workers.worker_profile import SelectedCode, WorkerProfile
    from penstock.sdk.app import Penstock

GRACE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Worker options from the command line."""

    concurrency: int | None = None
    processes: int | None = None
    max_claim_batch: int | None = None
    max_claim_per_worker: int | None = None
    max_tasks_per_child: int | None = None
    max_memory_per_child_mb: int | None = None
    name: str | None = None
    grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Everything known before the worker connects."""

    app: Penstock
    queues: Sequence[str]
    flags: Flags
    profile: WorkerProfile | None = None
    chosen: SelectedCode | None = None
    engine: str | None = None
    """The engine that runs it; None is our own."""

    @property
    def in_processes(self) -> bool:
        """Whether tasks run in child processes: by a flag, or by the configuration of the app."""
        if self.engine is not None:
            return False
        if self.flags.processes is not None:
            return True
        return self.app.config is not None and self.profile is None and self.flags.concurrency is None

    @property
    def slots(self) -> int:
        """Concurrent tasks, per queue or of all queues together (see `is_one`)."""
        if self.flags.processes is not None:
            return self.flags.processes
        if self.in_processes:
            return os.cpu_count() or 1
        if self.flags.concurrency is not None:
            return self.flags.concurrency
        if self.profile is not None:
            return self.profile.profile.max_concurrent_activities
        return self.app.tasks_at_once

    @property
    def grace_s(self) -> float:
        if self.flags.grace_s is not None:
            return self.flags.grace_s
        if self.profile is not None:
            return self.profile.profile.graceful_shutdown_timeout.total_seconds()
        return GRACE_SECONDS

    @property
    def is_one(self) -> bool:
        """Whether one worker serves all queues in order, sharing its slots."""
        if self.engine is not None:
            return False
        return self.in_processes or len(self.queues) == 1 or self.app.config is not None

    @property
    def claims_most(self) -> int:
        config, asked = self.app.config, self.flags.max_claim_per_worker or 0
        return (asked or self.slots) if config is None else config.claims_most(self.slots, asked)

    def concurrency_line(self) -> str:
        """The concurrency settings in force, as one log line with a stable format."""
        cap = self.app.config.cluster_wide_cap if self.app.config is not None else None
        return (
            f"Concurrency config: processes={self.slots}, cluster_wide_cap={cap or 'unlimited'},"
            f" max_claim_per_worker={self.claims_most}, max_claim_batch={self.flags.max_claim_batch or 0}"
        )

    def options(self) -> dict[str, Any]:
        """The options of the workers."""
        from penstock.sdk.worker.claim_options import Claiming

        flags, config = self.flags, self.app.config
        options: dict[str, Any] = {}
        if self.profile is not None and self.chosen is not None:
            options = self.profile.worker_options(self.chosen)
        elif not self.app.workflows:
            options["max_concurrent_local_activities"] = 0
        if self.profile is None or flags.concurrency is not None or self.in_processes:
            options["max_concurrent_activities"] = self.slots
        options["graceful_shutdown_timeout"] = timedelta(seconds=self.grace_s)
        options["claiming"] = Claiming(
            batch_max=flags.max_claim_batch or 0,
            most=flags.max_claim_per_worker or 0,
            **({} if config is None or self.engine is not None else _ahead(config)),
        )
        if self.in_processes:
            options |= {"all_in_processes": True, "process_slots": self.slots}
        if flags.max_tasks_per_child:
            options["process_recycle_after"] = flags.max_tasks_per_child
        if flags.max_memory_per_child_mb:
            options["process_recycle_over_bytes"] = flags.max_memory_per_child_mb << 20
        return options

    def facts(self) -> dict[str, Any]:
        """The plan as data."""
        app, where = self.app, self.app.connection
        facts: dict[str, Any] = {
            "app": app.name,
            "server": where.url,
            "namespace": where.namespace,
            "task_queues": list(self.queues),
            "concurrency": self.slots,
            "processes": self.slots if self.in_processes else None,
            "max_claim_per_worker": self.claims_most,
            "max_claim_batch": self.flags.max_claim_batch or 0,
            "tasks": sorted(app.tasks),
            "workflows": len(app.workflows),
            "activities": len(app.activities),
        }
        if self.profile is None or self.chosen is None:
            return facts
        selection = self.chosen.selection
        registered = {
            "registered_workflows": list(selection.workflows),
            "registered_activities": list(selection.activities),
        }
        return facts | self.profile.facts() | registered

    def draw(self) -> None:
        """The plan for a person to read."""
        draw_facts(self.facts())

    def announce(self) -> None:
        app, where = self.app, self.app.connection
        counts: dict[str, Any] = {"task": app.tasks, "workflow": app.workflows, "activity": app.activities}
        things = ", ".join(_counted(len(each), name) for name, each in counts.items() if each)
        echo_err(f"Running {app.name} on {where.url}, namespace {where.namespace}: {things}.")
        if self.profile is not None:
            echo_err(self._start_line())
        several = len(self.queues) > 1
        each = " on each" if several and not self.is_one else ""
        order = ", in this order" if several and self.is_one else ""
        where_they_run = f", in {_counted(self.slots, 'process')}" if self.in_processes else ""
        echo_err(
            f"{'Queues' if several else 'Queue'} {', '.join(self.queues)}{order};"
            f" up to {_counted(self.slots, 'task')} at once{each}{where_they_run}."
            f" Ctrl-C stops taking tasks and gives those that run {self.grace_s:g} seconds; once more ends at once."
        )

    def _start_line(self) -> str:
        what, chosen = self.profile, self.chosen
        assert what is not None
        assert chosen is not None
        cap = "no cap" if what.queue_cap is None else f"cap {what.queue_cap:g}/s"
        registered = [
            _counted(len(chosen.selection.workflows), "workflow"),
            _counted(len(chosen.selection.activities), "activity"),
        ]
        return (
            f"Profile {what.profile.name}, scope {what.scope.name} ({', '.join(registered)}),"
            f" queue {what.task_queue} ({cap}), fingerprint {what.config.fingerprint[:12]}."
        )


def draw_facts(facts: dict[str, Any]) -> None:
    """Draw the facts of a worker for people."""
    profile = facts.pop("profile_values", {})
    screen = Screen()
    screen.facts([(name.replace("_", " ").capitalize(), plain(value)) for name, value in facts.items()])
    if profile:
        screen.heading(f"Profile {facts['profile']}")
        screen.facts([(name, plain(value)) for name, value in profile.items()])


def _ahead(config: Any) -> dict[str, Any]:
    return {
        "prefetch": config.prefetch_buffer,
        "lease_ms": config.claim_lease_ms,
        "renew_age_ms": config.renew_age_ms,
    }


def _counted(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"1 {noun}" if number == 1 else f"{number} {plural}"
