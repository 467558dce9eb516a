"""The command that runs the workers of an app."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from penstock.cli.dispatch.files import Sources, dispatch_options, found_files, print_warnings
from penstock.cli.grammar import NounGroup, verb
from penstock.cli.output.exits import CommandError, CommandInterrupted, Exit, RequestRefused, echo_err
from penstock.cli.server.engine_check import ENGINE_OPTION
from penstock.cli.transport.session import CliSession, show_json
from penstock.cli.workers.engine import engine_of
from penstock.cli.workers.plan import GRACE_SECONDS, Flags, WorkerPlan, draw_facts
from penstock.cli.workers.runner import WorkerRunner
from penstock.cli.workers.worker_profile import (
    WorkerConfigErrors,
    WorkerProfile,
    choose,
    doubts_about,
    load_worker_profile,
    warn_of,
)

if TYPE_CHECKING:
    from penstock.sdk.app import Penstock

APP_VARIABLE = "PENSTOCK_APP"
NAME_MAX = 200
"""Length of a worker's name; the server accepts 255, and the queue is appended."""
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_COUNT_MAX = 10_000


class WorkerNoun(NounGroup):
    """The noun `worker`, which also accepts an app instead of a verb: `penstock worker myapp.instance:app`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and os.environ.get(APP_VARIABLE):
            args = ["run"]
        elif args and args[0] not in self.commands and _begins_a_run(args[0], ctx):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _begins_a_run(word: str, ctx: click.Context) -> bool:
    if word.startswith("-"):
        return word not in ctx.help_option_names
    if any(each in word for each in ":./"):
        return True
    return Path(f"{word}.py").is_file() or Path(word, "__init__.py").is_file()


class _Seconds(click.FloatRange):
    """A number within bounds; NaN is out of bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return found


@verb("run", example="penstock worker run myapp.instance:app --processes 8")
@click.argument("path", metavar="[MODULE:APP]", required=False)
@click.option("--module", "-m", "module", metavar="MODULE:APP", help="The app, as a flag.")
@click.option(
    "--task-queue",
    "-t",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Serve this queue; repeat for more. All queues of the app if omitted, or the default of the configuration.",
)
@click.option("--queues", "listed", metavar="A,B", help="Queues as a comma-separated list.")
@dispatch_options
@click.option("--profile", metavar="NAME", help="Worker profile of the dispatch configuration.")
@click.option(
    "--scope", metavar="NAME", help="Worker scope of the dispatch configuration: the code to register."
)
@click.option("--check", is_flag=True, help="Check everything, show the plan, and exit.")
@click.option(
    "--processes",
    type=click.IntRange(1, _COUNT_MAX),
    metavar="N",
    help="Run tasks in this many child processes, one at a time in each. An app with a config: one per core.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, _COUNT_MAX),
    metavar="N",
    help="Most tasks to run at once without child processes (100; with tasks in processes, the number of cores).",
)
@click.option(
    "--max-claim-batch",
    type=click.IntRange(0, _COUNT_MAX),
    metavar="N",
    help="Most tasks of one queue in one request; 0: as many as fit.",
)
@click.option(
    "--max-claim-per-worker",
    type=click.IntRange(0, _COUNT_MAX),
    metavar="N",
    help="Most prefetched tasks; 0: the number of processes plus the prefetch buffer.",
)
@click.option(
    "--max-tasks-per-child",
    type=click.IntRange(0, 1_000_000),
    metavar="N",
    help="Replace a child process after this many tasks; 0: never.",
)
@click.option(
    "--max-memory-per-child-mb",
    type=click.IntRange(1, 1 << 20),
    metavar="MB",
    help="Replace a child process that holds more memory after a task.",
)
@click.option("--name", metavar="NAME", help="The name of the worker; made of process and host if omitted.")
@click.option(
    "--loglevel",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Log level.",
)
@click.option(
    "--shutdown-timeout",
    "--graceful-shutdown-timeout",
    "grace",
    type=_Seconds(0, 86_400),
    metavar="SECONDS",
    help=f"Grace period of running tasks after Ctrl-C or SIGTERM ({GRACE_SECONDS:g}, or the one of the profile).",
)
@click.option("--reload", is_flag=True, help="Restart whenever code below this directory changes.")
@ENGINE_OPTION
@click.option("--address", metavar="HOST:PORT", help="With --engine temporal: the address of the cluster.")
@click.option(
    "--allow-approximate",
    is_flag=True,
    help="With --engine temporal: start in spite of settings that it refuses; they have no effect.",
)
@click.pass_obj
def run_app(
    session: CliSession,
    /,
    path: str | None,
    module: str | None,
    queues: Sequence[str],
    listed: str | None,
    sources: Sources,
    profile: str | None,
    scope: str | None,
    check: bool,
    loglevel: str,
    grace: float | None,
    reload: bool,
    engine: str | None,
    address: str | None,
    allow_approximate: bool,
    **numbers: Any,
) -> None:
    """Run workers for the tasks, workflows and activities of an app; `worker MODULE:APP` does the same."""
    named = _named(path, module)
    where = engine_of(session, engine, address, allow_approximate=allow_approximate)
    if reload and not check and named:
        from penstock.cli.workers.autoreload import run_reloading

        raise click.exceptions.Exit(run_reloading(Path.cwd()))
    _check_name(numbers["name"])
    wanted = _queue_names(queues, listed)
    special = _profile_for(sources, wanted, profile, scope)
    if check and not named and special is not None and not doubts_about(special.config, special.scope):
        _show_without_app(session, special)
        return
    app = _load(named or _missing(special))
    plan = _plan(app, wanted, Flags(grace_s=grace, **numbers), special)
    if where is not None:
        plan = where.checked(plan)
    if check:
        _show(session, plan)
        return
    with _explained():
        app.clients.prefer(**(_flags(session) | ({} if where is None else where.connection())))
        _configure_logs(loglevel.upper())
        running = WorkerRunner(plan, lambda: _announce(session, plan))
        forced_by = running.run()
    if forced_by is not None:
        raise click.exceptions.Exit(128 + forced_by)
    if running.killed:
        raise CommandError("ended_by_force", f"{running.killed} did not end in time and were ended by force.")
    echo_err("All workers have ended.")


def _named(path: str | None, module: str | None) -> str:
    """The app, from the argument, the flag or the environment; empty if there is none."""
    if path is not None and module is not None and path != module:
        raise click.UsageError(f"{path} and --module {module} cannot both be meant.")
    return path or module or os.environ.get(APP_VARIABLE, "").strip()


def _check_name(name: str | None) -> None:
    if name is not None and (not name.strip() or not name.isprintable() or len(name) > NAME_MAX):
        raise click.UsageError(f"--name has 1 to {NAME_MAX} characters that one can see, not {name!r}.")


def _missing(special: WorkerProfile | None) -> NoReturn:
    """The error for a missing app, or for a doubtful scope."""
    if special is not None and (doubts := doubts_about(special.config, special.scope)):
        raise WorkerConfigErrors(doubts)
    raise click.UsageError(f"Missing argument 'MODULE:APP'. {APP_VARIABLE} in the environment names it, too.")


def _show_without_app(session: CliSession, special: WorkerProfile) -> None:
    """Show the facts of a worker without its app."""
    if session.json:
        show_json(json.dumps(special.facts()))
    else:
        draw_facts(special.facts())
    echo_err("No app was named, so its code was not checked against the scope.")


def _queue_names(queues: Sequence[str], listed: str | None) -> list[str]:
    """The queues that are named, each once."""
    given = [] if listed is None else [each.strip() for each in listed.split(",")]
    for each in (*queues, *given):
        if not each:
            raise click.UsageError("--task-queue: the name of a queue is empty.")
    return list(dict.fromkeys([*queues, *given]))


def _profile_for(
    sources: Sources, queues: Sequence[str], profile: str | None, scope: str | None
) -> WorkerProfile | None:
    """The worker's profile from the dispatch configuration; None if there is none and none was requested."""
    if sources == Sources() and profile is None and scope is None and not found_files():
        return None
    if len(queues) > 1:
        raise click.UsageError("With a dispatch configuration a worker serves one queue: name one.")
    special = load_worker_profile(sources, queues[0] if queues else None, profile, scope)
    print_warnings(special.config)
    return special


def _plan(app: Penstock, wanted: Sequence[str], flags: Flags, special: WorkerProfile | None) -> WorkerPlan:
    if flags.processes is not None and flags.concurrency is not None:
        raise click.UsageError("--processes and --concurrency cannot both be meant.")
    if special is None:
        return WorkerPlan(app, _queues(app, wanted), flags)
    _check_activity_slots(special, flags)
    chosen = choose(special, app)
    warn_of(chosen)
    for each in chosen.notes:
        echo_err(each)
    return WorkerPlan(app, [special.task_queue], flags, special, chosen)


def _check_activity_slots(special: WorkerProfile, flags: Flags) -> None:
    """Refuse a number of activities with a profile that runs none."""
    if special.profile.max_concurrent_activities:
        return
    for name, given in (("--processes", flags.processes), ("--concurrency", flags.concurrency)):
        if given is not None:
            raise click.UsageError(
                f"{name} cannot be meant: the profile {special.profile.name!r} has no activity slots"
                " (max_concurrent_activities = 0)."
            )


def _queues(app: Penstock, named: Sequence[str]) -> Sequence[str]:
    """The named queues, in the order of the app's configuration if it has one; all queues if none is named."""
    from penstock.sdk.tasks.queues import UnknownQueueError

    for queue in named:
        try:
            app.check_queue(queue)
        except UnknownQueueError as error:
            raise click.UsageError(f"--task-queue: {error}") from None
    if not named:
        return app.queues
    return list(named) if app.config is None else [each for each in app.queues if each in named]


def _show(session: CliSession, plan: WorkerPlan) -> None:
    if session.json:
        show_json(json.dumps(plan.facts()))
    else:
        plan.draw()


def _announce(session: CliSession, plan: WorkerPlan) -> None:
    if session.json:
        show_json(json.dumps(plan.facts()))
    plan.announce()


def _load(path: str) -> Penstock:
    from penstock.cli.user_code import load_module, load_one
    from penstock.sdk.app import Penstock

    found = load_one(path, lambda each: isinstance(each, Penstock), "an app (made by Penstock(…))")
    assert isinstance(found, Penstock)
    for module in found.include:
        load_module(module)
    if not (found.tasks or found.workflows or found.activities):
        raise click.UsageError(
            f"{path} has nothing to run. Name the modules that define its tasks: Penstock(…, include=[…])."
        )
    return found


def _flags(session: CliSession) -> dict[str, Any]:
    """Flags override the configuration of the app."""
    return {
        "url": session.server,
        "namespace": session.namespace,
        "token": session.token,
        "signature_key": session.signature_key,
        "insecure": session.insecure or None,
    }


def _configure_logs(level: str) -> None:
    """Configure logging, unless the program has done so."""
    import logging

    if not logging.getLogger().handlers:
        logging.basicConfig(level=level, format=_LINE, stream=sys.stderr)


@contextmanager
def _explained() -> Iterator[None]:
    """Map errors of the SDK to messages and exit codes."""
    from penstock.sdk import failures

    try:
        yield
    except KeyboardInterrupt:
        raise CommandInterrupted("Stopped before it took any task.") from None
    except failures.Unreachable as error:
        raise CommandError("server_unreachable", str(error), "Name another with --server.") from error
    except failures.NotOnThisEngineError as error:
        raise PlanConflict(error.message) from error
    except failures.ServerRefused as error:
        given = {**error.details, "reason": error.reason, "message": error.message}
        raise RequestRefused(error.status, given) from error
    except (TypeError, ValueError) as error:
        raise PlanConflict(str(error)) from error


class PlanConflict(CommandError):
    """App and options do not fit together (exit code 2)."""

    exit_code = int(Exit.USAGE)

    def __init__(self, message: str) -> None:
        super().__init__("app_invalid", message)
