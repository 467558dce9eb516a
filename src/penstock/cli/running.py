"""The command that runs the workers of an app."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exits import Ended, Interrupted, Refused, Unreachable, say
from penstock.cli.grammar import Noun, verb
from penstock.cli.session import Session, show_json

if TYPE_CHECKING:
    from penstock.sdk.app import Penstock
    from penstock.sdk.worker import Worker

GRACE_SECONDS = 30.0
ANSWER_SECONDS = 3.0
_LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class WorkerNoun(Noun):
    """The noun `worker`, which also takes an app where a verb would stand: `penstock worker myapp.instance:app`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and _begins_a_run(args[0], ctx):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def _begins_a_run(word: str, ctx: click.Context) -> bool:
    if word.startswith("-"):
        return word not in ctx.help_option_names
    return ":" in word or "." in word


@verb("run", example="penstock worker run myapp.instance:app --task-queue mail --concurrency 20")
@click.argument("path", metavar="MODULE:APP")
@click.option(
    "--task-queue",
    "-t",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Serve this queue of the app; repeat for more. All of them if left out.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Most tasks to run at once, for each queue (100; with tasks in processes, the number of cores).",
)
@click.option(
    "--graceful-shutdown-timeout",
    "grace",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    default=GRACE_SECONDS,
    show_default=True,
    help="How long what runs may go on after Ctrl-C or SIGTERM.",
)
@click.pass_obj
def run_app(
    session: Session, path: str, queues: Sequence[str], concurrency: int | None, grace: float
) -> None:
    """Run workers for the tasks, workflows and activities of an app; `worker MODULE:APP` does the same."""
    app = _load(path)
    chosen = _queues(app, queues)
    slots = app.tasks_at_once if concurrency is None else concurrency
    plan = Plan(app, chosen, slots, grace, as_json=session.json)
    with _explained():
        app.clients.prefer(**_flags(session))
        _configure_logs()
        plan.run()
    say("All workers have ended.")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run: one worker for each queue."""

    app: Penstock
    queues: Sequence[str]
    slots: int
    grace_s: float
    as_json: bool

    def facts(self) -> dict[str, Any]:
        app, where = self.app, self.app.connection
        return {
            "app": app.name,
            "server": where.url,
            "namespace": where.namespace,
            "task_queues": list(self.queues),
            "concurrency": self.slots,
            "tasks": sorted(app.tasks),
            "workflows": len(app.workflows),
            "activities": len(app.activities),
        }

    def run(self) -> None:
        """Until somebody asks it to end."""
        from functools import partial

        from penstock.sdk.worker import run_worker

        run_worker(*[partial(self._worker, queue) for queue in self.queues])

    async def _worker(self, queue: str) -> Worker:
        if queue == self.queues[0]:
            await self.app.clients.check(timedelta(seconds=ANSWER_SECONDS))
            self._greet()
        return self.app.worker(
            await self.app.client(),
            queue,
            concurrency=self.slots,
            graceful_shutdown_timeout=timedelta(seconds=self.grace_s),
        )

    def _greet(self) -> None:
        if self.as_json:
            show_json(json.dumps(self.facts()))
        app, where = self.app, self.app.connection
        counts = {"task": app.tasks, "workflow": app.workflows, "activity": app.activities}
        things = ", ".join(_counted(len(each), name) for name, each in counts.items() if each)
        say(f"Running {app.name} on {where.url}, namespace {where.namespace}: {things}.")
        several = len(self.queues) > 1
        said = f"{'Queues' if several else 'Queue'} {', '.join(self.queues)}"
        each = " on each" if several else ""
        say(
            f"{said}; up to {self.slots} tasks at once{each}."
            f" Ctrl-C stops taking tasks and gives those that run {self.grace_s:g} seconds; once more ends at once."
        )


def _counted(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"1 {noun}" if number == 1 else f"{number} {plural}"


def _load(path: str) -> Penstock:
    from penstock.cli.loading import load_module, load_named
    from penstock.sdk.app import Penstock

    found = load_named(path, lambda each: isinstance(each, Penstock), "an app (made by Penstock(…))")
    assert isinstance(found, Penstock)
    for module in found.include:
        load_module(module)
    if not (found.tasks or found.workflows or found.activities):
        raise click.UsageError(
            f"{path} has nothing to run. Name the modules that define its tasks: Penstock(…, include=[…])."
        )
    return found


def _queues(app: Penstock, named: Sequence[str]) -> Sequence[str]:
    from penstock.sdk.tasks.queues import UnknownQueueError

    for queue in named:
        try:
            app.check_queue(queue)
        except UnknownQueueError as error:
            raise click.UsageError(f"--task-queue: {error}") from None
    return list(dict.fromkeys(named)) or app.queues


def _flags(session: Session) -> dict[str, Any]:
    """What the command line says counts more than what the app says."""
    return {
        "url": session.server,
        "namespace": session.namespace,
        "token": session.token,
        "insecure": session.insecure or None,
    }


def _configure_logs() -> None:
    """A program that has set up its logs by now keeps them."""
    import logging

    if not logging.getLogger().handlers:
        logging.basicConfig(level=logging.INFO, format=_LINE, stream=sys.stderr)


@contextmanager
def _explained() -> Iterator[None]:
    """Every way in which it may end, with its line and its exit code."""
    from penstock.sdk import failures

    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("Stopped before it took any task.") from None
    except failures.Unreachable as error:
        raise Unreachable(str(error), "Name another with --server.") from error
    except failures.ServerRefused as error:
        told = {**error.details, "reason": error.reason, "message": error.message}
        raise Refused(error.status, told) from error
    except (TypeError, ValueError) as error:
        raise Ended("app_invalid", str(error)) from error
