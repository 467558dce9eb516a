"""What workflow code acts through: its loop, the commands that it gives, and the futures that wait for them.

Everything here follows from the history alone. Numbers of steps are given when commands are confirmed by it, or when
they are about to be sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from random import Random
from typing import Any

from penstock.dispatch import DispatchConfig
from penstock.sdk.converters import DataConverter
from penstock.sdk.dispatch_options import ConfigGetter, no_configuration
from penstock.sdk.failures import error_from
from penstock.sdk.replay.commands import Command, CommandKind, StepFuture, where
from penstock.sdk.replay.determinism_guard import aside
from penstock.sdk.replay.errors import NotInWorkflowError, ReadOnlyError
from penstock.sdk.replay.events import DEPRECATED, PATCHED, HistoryEvent
from penstock.sdk.replay.info import Info
from penstock.sdk.replay.loop import EvictedError, WorkflowLoop

TIMER_MS_MAX = 315_360_000_000
CLOSING_ROUNDS = 3
"""So often code that is forgotten is told to end."""
_STARTED_LATER = ("ActivityCompleted", "ChildRunCompleted")
LOCAL_OUTCOMES = ("message", "exception_type", "non_retryable", "timeout_kind", "exception")
"""What is heard of a local activity that did not succeed, when it happens and in every replay."""
_PLAIN = (None, type(None), bool, int, float, str, bytes)
"""Hints by which a value is read without asking any code of users."""
_CATEGORIES = {"failed": "activity", "timed_out": "timeout", "cancelled": "cancelled"}
_LOCAL_ENDS = {"failed": "ActivityFailed", "timed_out": "ActivityTimedOut", "cancelled": "ActivityCancelled"}


@dataclass(frozen=True, slots=True)
class LocalActivityRequest:
    """A local activity that is to be run now, within the workflow task."""

    request_id: str
    activity_type: str
    arguments: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class _Condition:
    holds: Callable[[], bool]
    met: asyncio.Future[None]
    context: Context


class Runtime:
    """One run in memory, seen from its code."""

    def __init__(
        self,
        info: Info,
        converter: DataConverter,
        logger: logging.Logger,
        dispatch: ConfigGetter = no_configuration,
    ) -> None:
        self.info = info
        self.converter = converter
        self.log = logger
        self._dispatch = dispatch
        self.loop = WorkflowLoop(self)  # type: ignore[abstract]
        self.now = info.start_time
        self.is_replaying = False
        self.is_silent = False
        """Whether what the code logs was logged before."""
        self.is_read_only: str | None = None
        self.is_closing = False
        self.memo: dict[str, Any] = dict(info.memo)
        self.search_attributes: dict[str, Any] = dict(info.search_attributes)
        self.instance: Any = None
        self.handlers: Any = None
        self.cancel_reason: str | None = None
        self.known_patches: set[str] = set()
        """Changes that the history has markers of."""
        self.commands: list[Command] = []
        """What the code asked for in this activation."""
        self.local: list[LocalActivityRequest] = []
        self._waiting: dict[int, StepFuture[Any]] = {}
        self._local_waiting: dict[str, tuple[StepFuture[Any], Command]] = {}
        self._local_count = 0
        self._patches: dict[str, bool] = {}
        self._conditions: list[_Condition] = []
        self.loop.check_writable = self.check_writable
        self.loop.penstock_runtime = self  # type: ignore[attr-defined]

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────

    def set_now(self, at: datetime) -> None:
        """Time never goes back within a run, whatever clocks the servers had."""
        self.now = max(self.now, at.astimezone(UTC))
        self.loop.set_time(round(self.now.timestamp() * 1000))

    def check_writable(self, what: str) -> None:
        """Queries and validators look; they change nothing, not even what the dice show next."""
        if self.is_read_only is not None:
            raise ReadOnlyError(f"{self.is_read_only} must not use {what}: it would change the run.")

    @cached_property
    def random(self) -> Random:
        """Dice that show the same in every replay; most code never asks for them."""
        return Random(_seed(self.info.run_id))

    def uuid4(self) -> uuid.UUID:
        self.check_writable("workflow.uuid4()")
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    # ── dispatch ────────────────────────────────────────────────────────────────────────────────────────

    def dispatch(self) -> DispatchConfig | None:
        """The configuration by which activities are dispatched now. Replay needs none: history has what was chosen."""
        return None if self.is_replaying else self._dispatch()

    # ── asking ──────────────────────────────────────────────────────────────────────────────────────────

    def ask(
        self,
        kind: CommandKind,
        body: dict[str, Any],
        *,
        name: str = "",
        facts: dict[str, Any] | None = None,
        target: Command | None = None,
    ) -> Command:
        """Note what the code asks for. Queries and validators may ask for nothing."""
        self.check_writable(kind.value)
        if self.is_closing:
            raise EvictedError
        command = Command(kind, body, name, where=where(), facts=facts or {}, target=target)
        self.commands.append(command)
        return command

    def step(
        self,
        kind: CommandKind,
        body: dict[str, Any],
        *,
        name: str = "",
        facts: dict[str, Any] | None = None,
        give_up: Callable[[StepFuture[Any]], bool] | None = None,
        future: type[StepFuture[Any]] = StepFuture,
    ) -> Any:
        """Ask for a step, and wait for its outcome with the future that is returned."""
        command = self.ask(kind, body, name=name, facts=facts)
        return future(self.loop, command, give_up or self.give_up)

    def start_timer(self, delay_ms: int) -> StepFuture[None]:
        if delay_ms > TIMER_MS_MAX:
            raise ValueError("a timer may run for ten years at most; for ever is a wait without a timeout")
        body = {"delay_seconds": -(-delay_ms // 1000), "delay_ms": delay_ms}
        timer: StepFuture[None] = self.step(CommandKind.TIMER, body)
        return timer

    def start_local_activity(
        self, activity_type: str, arguments: dict[str, str], options: dict[str, Any], result_type: Any
    ) -> StepFuture[Any]:
        """Have a local activity run; its command is given when it has ended."""
        self.check_writable("activities")
        self._local_count += 1
        request = LocalActivityRequest(
            f"{self.info.run_id}-l{self._local_count}", activity_type, arguments, options
        )
        command = Command(
            CommandKind.LOCAL_ACTIVITY,
            {
                "activity_type": activity_type,
                "execution_mode": "local",
                "arguments": arguments,
                "local_number": self._local_count,
            },
            activity_type,
            where=where(),
            facts={"activity_type": activity_type, "local_number": self._local_count},
        )
        future: StepFuture[Any] = StepFuture(self.loop, command, lambda _: True)
        future.cancelled_error = self.activity_cancelled
        future.result_type = result_type  # type: ignore[attr-defined]
        self.local.append(request)
        self._local_waiting[request.request_id] = (future, command)
        return future

    def activity_cancelled(self, future: StepFuture[Any]) -> Exception:
        """The error of an activity whose handle was cancelled: `ActivityError`, caused by `CancelledError`."""
        said: dict[str, Any] = {"activity_type": future.command.name}
        if future.command.step is not None:
            said["activity_execution_id"] = f"{self.info.run_id}-a{future.command.step}"
        return error_from(said, self.converter, event_type="ActivityCancelled")

    def child_cancelled(self, future: StepFuture[Any]) -> Exception:
        """The error of a child whose handle was cancelled: `ChildWorkflowError`, caused by `CancelledError`."""
        said = {
            "child_workflow_type": future.command.name,
            "child_workflow_instance_id": future.command.body["workflow_id"],
        }
        return error_from(said, self.converter, event_type="ChildRunCancelled")

    def give_up(self, future: StepFuture[Any]) -> bool:
        """The code no longer waits for a step: what was not asked yet is not asked, the rest is to be ended."""
        command = future.command
        if self.is_closing:
            return True
        if not command.is_taken:
            command.given_up = True
            return True
        if not command.given_up:
            command.given_up = True
            self.ask(CommandKind.CANCEL_STEP, {}, name=command.name, target=command)
        return True

    def request_cancel(self, future: StepFuture[Any]) -> bool:
        """Ask a step to end, and let the code that awaits it go on when it has. A step that was not sent is dropped."""
        command = future.command
        if self.is_closing or not command.is_taken:
            return self.give_up(future)
        if not command.given_up:
            command.given_up = True
            self.ask(CommandKind.CANCEL_STEP, {"wait": True}, name=command.name, target=command)
        return False

    # ── outcomes ────────────────────────────────────────────────────────────────────────────────────────

    def confirm(self, command: Command, step: int | None) -> None:
        """A command has its number: its outcome will be told under it."""
        command.step = step
        if step is not None and command.future is not None and not command.future.done():
            self._waiting[step] = command.future

    def resolve(self, event: HistoryEvent) -> None:
        """Tell whoever waits for a step how it ended. Nobody may: it was given up."""
        step = event.step
        future = None if step is None else self._waiting.pop(step, None)
        if future is None or future.done():
            return
        if event.type == "TimerFired" or event.type == "ExternalRequestDelivered":
            future.set_result(None)
        elif event.type in _STARTED_LATER:
            future.set_result(self._result(event, future))
        else:
            future.set_exception(error_from(event.payload, self.converter, event_type=event.type))

    def _result(self, event: HistoryEvent, future: StepFuture[Any]) -> Any:
        blob = event.payload.get("result")
        if blob is None:
            blob = event.payload.get("output")
        hint = getattr(future, "result_type", None)
        if self.converter.is_plain and hint in _PLAIN:
            return _read(self.converter, blob, hint)
        return self.converter.decode(blob, hint)

    def find_local_request(self, number: object, activity_type: object) -> str | None:
        """A local activity that has not ended, by its number; None: the code has asked for no such thing."""
        for request_id, (_, command) in self._local_waiting.items():
            if command.facts == {"activity_type": activity_type, "local_number": number}:
                return request_id
        return None

    def resolve_local_activity(self, request_id: str, told: dict[str, Any]) -> None:
        """A local activity has ended: `told` completes its command; the code goes on with the outcome.

        What the code hears follows from `told` alone, so that it hears the same when it is replayed.
        """
        future, command = self._local_waiting.pop(request_id)
        command.body |= told
        self.commands.append(command)
        if future.done():
            return
        if told["outcome"] == "completed":
            future.set_result(self.converter.decode(told.get("result"), getattr(future, "result_type", None)))
        else:
            heard = {name: told.get(name) for name in LOCAL_OUTCOMES} | {"activity_type": command.name}
            heard["failure_category"] = _CATEGORIES[told["outcome"]]
            future.set_exception(error_from(heard, self.converter, event_type=_LOCAL_ENDS[told["outcome"]]))

    # ── conditions ──────────────────────────────────────────────────────────────────────────────────────

    def when(self, holds: Callable[[], bool]) -> asyncio.Future[None]:
        """A future that is done when the code, having done all it can, finds that a condition holds."""
        condition = _Condition(holds, self.loop.create_future(), copy_context())
        self._conditions.append(condition)
        return condition.met

    def run(self) -> None:
        """Run the code until it waits for something that only the history can bring."""
        self.loop.run_until_quiet()
        while self._meet_conditions():
            self.loop.run_until_quiet()

    def _meet_conditions(self) -> bool:
        """Let the first go on of those whose condition holds; what it does may concern the others."""
        if not self._conditions:
            return False
        self._conditions = [each for each in self._conditions if not each.met.done()]
        return any(self._holds(condition) for condition in self._conditions)

    def _holds(self, condition: _Condition) -> bool:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            if condition.context.run(condition.holds):
                condition.met.set_result(None)
        except Exception as error:
            condition.met.set_exception(error)
        finally:
            asyncio._set_running_loop(before)
        return condition.met.done()

    # ── patches ─────────────────────────────────────────────────────────────────────────────────────────

    def patched(self, change_id: str, version: int) -> bool:
        """Whether code that was changed takes the new way in this run; said once, it stays."""
        if change_id in self._patches:
            return self._patches[change_id]
        taken = change_id in self.known_patches or not self.is_replaying
        if taken:
            body = {
                "change_id": change_id,
                "version": version,
                "min_supported": PATCHED,
                "max_supported": DEPRECATED,
            }
            self.ask(CommandKind.VERSION_MARKER, body, name=change_id, facts={"change_id": change_id})
        self._patches[change_id] = taken
        return taken

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> list[Command]:
        commands = [each for each in self.commands if not each.given_up]
        for each in self.commands:
            each.is_taken = True
        self.commands = []
        return commands

    def close(self) -> None:
        """Forget the run. Its code is ended where it stands; whatever it asks for or awaits now ends it, too."""
        self.is_closing = self.is_replaying = self.is_silent = True
        self.loop.is_closing = True
        try:
            for _ in range(CLOSING_ROUNDS):
                for task in list(self.loop.tasks.values()):
                    task.cancel()
                self.loop.run_until_quiet()
        finally:
            self.loop.close()
            self._waiting.clear()
            self._conditions.clear()
            self.instance = self.handlers = None


def current() -> Runtime:
    """The run whose code is being executed. Raises `NotInWorkflowError` elsewhere."""
    found = maybe_current()
    if found is None:
        raise NotInWorkflowError(
            "This works in workflow code only: inside the run method or a handler of a @workflow.defn class."
        )
    return found


def maybe_current() -> Runtime | None:
    found: Runtime | None = getattr(asyncio._get_running_loop(), "penstock_runtime", None)
    return found


@aside
def _read(converter: DataConverter, blob: Any, hint: Any) -> Any:
    """A value in which no code of users takes part."""
    return converter.decode(blob, hint)


def _seed(run_id: str) -> int:
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8])
