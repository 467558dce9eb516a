"""The state that workflow code works on: its event loop, its commands, and the futures that await them.

Everything here derives from the history alone. Step numbers are assigned when commands are matched with the history,
or when they are about to be sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from penstock.dispatch import DispatchConfig
from penstock.sdk.converters import DataConverter
from penstock.sdk.dispatch_options import ConfigGetter, no_configuration
from penstock.sdk.failures import error_from
from penstock.sdk.replay.commands import Command, CommandKind, StepFuture, where
from penstock.sdk.replay.determinism_guard import unprofiled
from penstock.sdk.replay.errors import ReadOnlyError
from penstock.sdk.replay.events import DEPRECATED, PATCHED, HistoryEvent
from penstock.sdk.replay.inboxes import Inboxes
from penstock.sdk.replay.loop import EvictedError, WorkflowLoop
from penstock.sdk.workflow_port.info import Info

TIMER_MS_MAX = 315_360_000_000
CLOSING_ROUNDS = 3
"""How often code of an evicted run is cancelled before it is abandoned."""
_STARTED_LATER = ("ActivityCompleted", "ChildRunCompleted")
LOCAL_OUTCOMES = ("message", "exception_type", "non_retryable", "timeout_kind", "exception")
"""The fields of a failed local activity that the code can observe, both when it happens and in every replay."""
_PLAIN = (None, type(None), bool, int, float, str, bytes)
"""Type hints for which decoding involves no user code."""
_CATEGORIES = {"failed": "activity", "timed_out": "timeout", "cancelled": "cancelled"}
_LOCAL_ENDS = {"failed": "ActivityFailed", "timed_out": "ActivityTimedOut", "cancelled": "ActivityCancelled"}


@dataclass(frozen=True, slots=True)
class LocalActivityRequest:
    """A local activity to run now, within the workflow task."""

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
    """One run in memory, as seen by its code."""

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
        self.on_time: Callable[[datetime], None] = lambda _: None
        """Called when time advances."""
        self.is_replaying = False
        self.is_silent = False
        """Whether log output of the code is suppressed, because it was logged before."""
        self.is_read_only: str | None = None
        self.is_closing = False
        self.memo: dict[str, Any] = dict(info.memo)
        self.search_attributes: dict[str, Any] = dict(info.search_attributes)
        info.search_attributes = self.search_attributes
        self.instance: Any = None
        self.handlers: Any = None
        self.cancel_reason: str | None = None
        self.current_details = ""
        self.known_patches: set[str] = set()
        """Patches that have a marker in the history."""
        self.commands: list[Command] = []
        """Commands issued in this activation."""
        self.local: list[LocalActivityRequest] = []
        self._waiting: dict[int, StepFuture[Any]] = {}
        self._local_waiting: dict[str, tuple[StepFuture[Any], Command]] = {}
        self._local_count = 0
        self._patches: dict[str, bool] = {}
        self.copied_history: Sequence[tuple[int, str]] = ()
        """The last event of each part of the history that another run recorded, and that run."""
        self._seeded_by = info.run_id
        self._random: Random | None = None
        self._conditions: list[_Condition] = []
        self.inboxes = Inboxes(converter)
        self.loop.check_writable = self.check_writable

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────

    def set_now(self, at: datetime) -> None:
        """Advance the time. It never goes back within a run, whatever the clocks of the servers."""
        self.now = max(self.now, at.astimezone(UTC))
        self.on_time(self.now)
        self.loop.set_time(round(self.now.timestamp() * 1000))

    def check_writable(self, what: str) -> None:
        """Raise if the code may only read: queries and validators change nothing, not even the random number
        generator.
        """
        if self.is_read_only is not None:
            raise ReadOnlyError(f"{self.is_read_only} must not use {what}: it would change the run.")

    def decide_at(self, event: int) -> None:
        """Note that what the code does now is recorded from this event on.

        A run that was reset or forked has a copy of another run's events: their random numbers are those of that run.
        """
        recorded_by = next(
            (run_id for last, run_id in self.copied_history if event <= last), self.info.run_id
        )
        if recorded_by != self._seeded_by:
            self._seeded_by, self._random = recorded_by, None

    @property
    def random(self) -> Random:
        """A random number generator that is seeded by the run, created on first use."""
        if self._random is None:
            self._random = Random(_seed(self._seeded_by))
        return self._random

    def uuid4(self) -> uuid.UUID:
        self.check_writable("workflow.uuid4()")
        return uuid.UUID(int=self.random.getrandbits(128), version=4)

    # ── dispatch ────────────────────────────────────────────────────────────────────────────────────────

    def dispatch(self) -> DispatchConfig | None:
        """The current dispatch configuration. Replay does not need it: the history contains the resolved options."""
        return None if self.is_replaying else self._dispatch()

    # ── commands ────────────────────────────────────────────────────────────────────────────────────────

    def issue(
        self,
        kind: CommandKind,
        body: dict[str, Any],
        *,
        name: str = "",
        facts: dict[str, Any] | None = None,
        target: Command | None = None,
    ) -> Command:
        """Issue a command. Queries and validators may not."""
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
        """Issue a command for a step and return the future of its outcome."""
        command = self.issue(kind, body, name=name, facts=facts)
        return future(self.loop, command, give_up or self.give_up)

    def start_timer(self, delay_ms: int) -> StepFuture[None]:
        if delay_ms > TIMER_MS_MAX:
            raise ValueError(
                "a timer may run for ten years at most; to wait indefinitely, leave the timeout out"
            )
        body = {"delay_seconds": -(-delay_ms // 1000), "delay_ms": delay_ms}
        timer: StepFuture[None] = self.step(CommandKind.TIMER, body)
        return timer

    def start_local_activity(
        self, activity_type: str, arguments: dict[str, str], options: dict[str, Any], result_type: Any
    ) -> StepFuture[Any]:
        """Request a local activity. Its command is issued when it has ended."""
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
        """Return the error of an activity cancelled through its handle: `ActivityError`, caused by `CancelledError`."""
        payload: dict[str, Any] = {"activity_type": future.command.name}
        if future.command.step is not None:
            payload["activity_execution_id"] = f"{self.info.run_id}-a{future.command.step}"
        return error_from(payload, self.converter, event_type="ActivityCancelled")

    def child_cancelled(self, future: StepFuture[Any]) -> Exception:
        """The error of a child cancelled through its handle: `ChildWorkflowError`, caused by `CancelledError`."""
        payload = {
            "child_workflow_type": future.command.name,
            "child_workflow_instance_id": future.command.body["workflow_id"],
        }
        return error_from(payload, self.converter, event_type="ChildRunCancelled")

    def give_up(self, future: StepFuture[Any]) -> bool:
        """Stop waiting for a step: a command that was not sent is withdrawn, otherwise the step is cancelled."""
        command = future.command
        if self.is_closing:
            return True
        if not command.is_taken:
            command.given_up = True
            return True
        if not command.given_up:
            command.given_up = True
            self.issue(CommandKind.CANCEL_STEP, {}, name=command.name, target=command)
        return True

    def request_cancel(self, future: StepFuture[Any]) -> bool:
        """Cancel a step, and let the awaiting code continue once it has ended.

        A command that was not sent is withdrawn.
        """
        command = future.command
        if self.is_closing or not command.is_taken:
            return self.give_up(future)
        if not command.given_up:
            command.given_up = True
            self.issue(CommandKind.CANCEL_STEP, {"wait": True}, name=command.name, target=command)
        return False

    # ── outcomes ────────────────────────────────────────────────────────────────────────────────────────

    def confirm(self, command: Command, step: int | None) -> None:
        """Set the step number of a command. Its outcome will have the same number."""
        command.step = step
        if step is not None and command.future is not None and not command.future.done():
            self._waiting[step] = command.future

    def resolve(self, event: HistoryEvent) -> None:
        """Resolve the future of a step with its outcome, unless the code no longer waits for it."""
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
        """Return the request of an open local activity by its number; None if the code made no such request."""
        for request_id, (_, command) in self._local_waiting.items():
            if command.facts == {"activity_type": activity_type, "local_number": number}:
                return request_id
        return None

    def resolve_local_activity(self, request_id: str, outcome: dict[str, Any]) -> None:
        """End a local activity: `outcome` completes its command, and the code continues with the outcome.

        The outcome is derived from `outcome` alone, so that a replay observes the same.
        """
        future, command = self._local_waiting.pop(request_id)
        command.body |= outcome
        self.commands.append(command)
        if future.done():
            return
        if outcome["outcome"] == "completed":
            future.set_result(
                self.converter.decode(outcome.get("result"), getattr(future, "result_type", None))
            )
        else:
            payload = {name: outcome.get(name) for name in LOCAL_OUTCOMES} | {"activity_type": command.name}
            payload["failure_category"] = _CATEGORIES[outcome["outcome"]]
            future.set_exception(
                error_from(payload, self.converter, event_type=_LOCAL_ENDS[outcome["outcome"]])
            )

    # ── conditions ──────────────────────────────────────────────────────────────────────────────────────

    def when(self, holds: Callable[[], bool]) -> asyncio.Future[None]:
        """Return a future that completes when the condition holds after the code has run as far as possible."""
        condition = _Condition(holds, self.loop.create_future(), copy_context())
        self._conditions.append(condition)
        return condition.met

    def run(self) -> None:
        """Run the code until it waits for something that only the history can bring."""
        self.loop.run_until_quiet()
        while self._meet_conditions():
            self.loop.run_until_quiet()

    def _meet_conditions(self) -> bool:
        """Wake the first waiter whose condition holds. What it does may affect the others."""
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
        """Whether this run takes the patched path. Once decided, it stays."""
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
            self.issue(CommandKind.VERSION_MARKER, body, name=change_id, facts={"change_id": change_id})
        self._patches[change_id] = taken
        return taken

    # ── eviction ────────────────────────────────────────────────────────────────────────────────────────

    def take_commands(self) -> list[Command]:
        commands = [each for each in self.commands if not each.given_up]
        for each in self.commands:
            each.is_taken = True
        self.commands = []
        return commands

    def close(self) -> None:
        """Evict the run. Its code is cancelled where it stands, and cannot issue or await anything more."""
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


@unprofiled
def _read(converter: DataConverter, blob: Any, hint: Any) -> Any:
    """Decode a value for which no user code is called."""
    return converter.decode(blob, hint)


def _seed(run_id: str) -> int:
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8])
