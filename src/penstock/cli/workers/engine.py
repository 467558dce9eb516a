"""The flags of the worker program for another engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output.exits import CommandError, Exit, warn
from penstock.cli.transport.session import CliSession

if TYPE_CHECKING:
    from penstock.cli.workers.plan import WorkerPlan

_NAMESPACE = "default"
_NOT_THERE = {
    "processes": "--processes",
    "max_claim_batch": "--max-claim-batch",
    "max_claim_per_worker": "--max-claim-per-worker",
    "max_memory_per_child_mb": "--max-memory-per-child-mb",
}
"""Flags that only our engine has something for."""


class EngineRefused(CommandError):
    """The engine has nothing for some settings or code (exit code 2)."""

    exit_code = int(Exit.USAGE)

    def __init__(self, message: str) -> None:
        super().__init__("not_on_this_engine", message, "See `penstock config check --engine temporal`.")


@dataclass(frozen=True, slots=True)
class WorkerEngine:
    """Where the worker runs instead of our server."""

    url: str
    allow_approximate: bool

    def connection(self) -> dict[str, Any]:
        """The connection options of the app's clients."""
        return {"url": self.url, "allow_approximate": self.allow_approximate}

    def checked(self, plan: WorkerPlan) -> WorkerPlan:
        """Refuse what the engine has nothing for, before anything is connected."""
        from penstock.engines.temporal.lint import WorkflowCodeRefused, check_code
        from penstock.engines.temporal.support import EngineSettingsRefused, check_support
        from penstock.sdk.workflows.definitions import WorkflowDefinition

        for field, flag in _NOT_THERE.items():
            if getattr(plan.flags, field) is not None:
                raise click.UsageError(f"{flag} is not available with --engine temporal.")
        workflows = plan.app.workflows if plan.chosen is None else plan.chosen.workflows
        config = None if plan.profile is None else plan.profile.config
        try:
            check_code([WorkflowDefinition.of(each) for each in workflows])
            found = check_support(
                config,
                plan.app.config,
                {name: each.options for name, each in plan.app.tasks.items()},
                plan.app.schedules,
                allow_approximate=self.allow_approximate,
            )
        except (WorkflowCodeRefused, EngineSettingsRefused) as error:
            raise EngineRefused(str(error)) from error
        for each in found:
            if config is None or each.source == "the app":
                warn(f"{each.path} = {each.value} is {each.level} on Temporal: {each.how}")
        return replace(plan, engine="temporal")


def engine_of(
    session: CliSession, engine: str | None, address: str | None, *, allow_approximate: bool
) -> WorkerEngine | None:
    """Return the engine that the flags name; None is our own."""
    from penstock.sdk.connection.transport import is_engine_address

    if engine is None:
        if address is not None or allow_approximate:
            raise click.UsageError("--address and --allow-approximate are for --engine temporal.")
        if session.server is None or not is_engine_address(session.server):
            return None
    from penstock.sdk.connection.engines import EngineNotInstalledError, engine_package

    try:
        engine_package("temporal")
        from penstock.engines.temporal.connection import TemporalAddress
    except (EngineNotInstalledError, ModuleNotFoundError) as error:
        raise CommandError(
            "engine_not_installed", str(error), "Install it: pip install 'penstock[temporal]'."
        ) from error
    given = address or session.server or "127.0.0.1:7233"
    try:
        parsed = TemporalAddress.parse(given)
    except ValueError as error:
        raise click.UsageError(f"--address: {error}") from None
    url = given if "://" in given else f"temporal://{parsed.target}/{parsed.namespace or ''}".rstrip("/")
    return WorkerEngine(url, allow_approximate)
