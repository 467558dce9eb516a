"""Workflow replay: one run in memory, advanced by its history.

Theory of operation
-------------------
A run is never stored as a snapshot. It is stored as its history, and a worker rebuilds it by executing the workflow
code from the start (event sourcing; the model of Temporal and Azure Durable Functions). The code is deterministic
with respect to the history: whenever it reaches the same event, it has issued the same commands.

A history is a sequence of workflow tasks. Each consists of

1. inputs: the start, signals, updates, outcomes of steps, a cancel request;
2. a marker, `WorkflowTaskCompleted`: here a worker ran the code on those inputs (an *activation*);
3. records of the commands that the code issued in that activation.

`apply_history` walks over it. Inputs are collected until a marker; the marker runs one activation in replay mode and
keeps its commands as expected; the records that follow are matched against them one by one (`command_matcher`).
Inputs after the last marker are new. `advance` runs the code on them for the first time, and its commands are sent.

Within an activation the order of inputs is fixed: signals and updates first, so that code which completes now has
seen them; then outcomes of steps; then a cancel request. All code of a run executes on `WorkflowLoop`, which makes
the order of everything else deterministic.

A cached run skips the replay. After its commands are reported, the server either repeats their records, which are
matched like any others, or starts the next task after them (`cached_through`); then `_skip_recorded_commands` accepts
them as recorded and continues from there.

Local activities run between activations of the same workflow task: `resolve_local` continues the code with an
outcome. On replay, their recorded outcomes continue it at the same place (`_resolve_recorded_local`).

Invariant `replay-is-deterministic`: for every prefix of a history, replayed and cached runs issue the same commands
and observe the same values. A mismatch raises `NonDeterminismError`, which fails the workflow task and leaves the run
open for other code. No error of the SDK or of the code itself closes a run; only failures that the code raises
deliberately do.

Queries and validators run on the same state and must not change it. Writes raise `ReadOnlyError`; if something became
ready nevertheless, the run is marked dirty and is replayed from the start before its next task.

Rejected:
- snapshots of coroutines: they cannot be serialised in Python, and they would tie a run to one version of its code;
- generator-based workflows that yield one step at a time: no `gather`, `timeout` or `TaskGroup`; the public protocol
  still supports them for other SDKs (stepwise runs);
- matching commands as a set rather than a sequence: it accepts reorderings that change which outcome belongs to
  which await;
- threads with blocking calls instead of coroutines: their interleaving cannot be controlled without a scheduler of
  our own, and a cached run would occupy a thread.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.sdk.converters import ConversionError, DataConverter
from penstock.sdk.dispatch_options import ConfigGetter, no_configuration
from penstock.sdk.failures import failure_fields, is_cancelled_exception
from penstock.sdk.replay import events as named
from penstock.sdk.replay.command_matcher import ExpectedCommands
from penstock.sdk.replay.commands import NUMBERED, TERMINAL, Command, CommandKind
from penstock.sdk.replay.deadlock_detector import DeadlockDetector, detects_deadlocks
from penstock.sdk.replay.determinism_guard import DeterminismGuard
from penstock.sdk.replay.errors import NonDeterminismError, ReadOnlyError, WorkflowTaskError
from penstock.sdk.replay.events import HistoryEvent
from penstock.sdk.replay.handlers import Handlers
from penstock.sdk.replay.info import PolledRun, info_of
from penstock.sdk.replay.port import ReplayPort
from penstock.sdk.replay.runtime import LocalActivityRequest, Runtime
from penstock.sdk.replay.unguarded_codecs import with_unguarded_codecs
from penstock.sdk.workflow_port.continue_as_new import ContinueAsNewError
from penstock.sdk.workflows.definitions import WorkflowDefinition, sole_exception
from penstock.sdk.workflows.dynamic_calls import run_arguments

LOG = logging.getLogger("penstock.workflow")
DEADLOCK_TIMEOUT_S = 2.0
CANCELLED_BY_ITSELF = "cancelled by its own code"
"""The cancel reason of a run whose run method ended with `asyncio.CancelledError` without a cancel request."""
COMMANDS_MAX = 10_000
"""The maximum number of commands that a server accepts with one workflow task."""
Json = dict[str, Any]
_ARGUMENTS = ("arguments", "input", "input_envelope")


@dataclass(frozen=True, slots=True)
class Activation:
    """The result of an activation: commands to send, and local activities to run before that."""

    commands: list[Json] = field(default_factory=list)
    local: list[LocalActivityRequest] = field(default_factory=list)
    closes: bool = False
    """Whether the run closes with these commands."""
    origins: list[str] = field(default_factory=list)
    """Description and source line of each command."""
    stream_cursors: list[Json] = field(default_factory=list)
    """How far the code has read its message streams."""
    stream_waits: list[Json] = field(default_factory=list)
    """The streams that it reads now."""


def _illegal_exit(error: BaseException) -> WorkflowTaskError:
    """Return the task error for code that raised something only the worker may raise."""
    return WorkflowTaskError(
        f"workflow code raised {type(error).__name__} ({error}); let it return, or raise an ApplicationError"
    )


def _is_cancellation(error: BaseException) -> bool:
    """Whether an error is a cancellation; for a group, whether each of its errors is."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancellation(each) for each in error.exceptions)
    return is_cancelled_exception(error)


class WorkflowRun:
    """One run of a workflow. Events are applied in order, each once. See the module docstring."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        polled_run: PolledRun,
        converter: DataConverter,
        *,
        is_guarded: bool = True,
        stuck_after_s: float | None = DEADLOCK_TIMEOUT_S,
        interceptors: Sequence[Any] = (),
        dispatch: ConfigGetter = no_configuration,
    ) -> None:
        self._definition = definition
        self._polled_run = polled_run
        self._converter = with_unguarded_codecs(converter)
        self._is_guarded = is_guarded and definition.is_guarded
        self._stuck_after_s = stuck_after_s
        self._interceptors = tuple(interceptors)
        self._dispatch = dispatch
        self._runtime: Runtime | None = None
        self._handlers: Handlers | None = None
        self._main: asyncio.Task[Any] | None = None
        self._new_events: list[HistoryEvent] = []
        self._expected: ExpectedCommands | None = None
        """Commands of a recorded activation, to be matched with the records that follow its marker."""
        self._unconfirmed: list[Command] | None = None
        """Commands of an activation that is not recorded yet."""
        self._closed = False
        """Whether the code has ended."""
        self._ended = False
        """Whether the history records that end."""
        self._is_silent = False
        self._recorded_through: int | None = None
        self._is_dirty = False
        """Whether a read-only call has changed something."""
        self._last_step = 0
        self.seen = 0
        """Sequence of the last event applied."""

    # ── history ─────────────────────────────────────────────────────────────────────────────────────────

    def activate(self, history: Sequence[Mapping[str, Any]]) -> Activation:
        """Apply new events and advance the code. Raises `WorkflowTaskError` if that is not possible."""
        for _ in self.apply_history(history):
            pass
        return self.advance()

    def apply_history(self, history: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        """Apply a history up to its last completed workflow task.

        Yields after each task, so that a long replay can be interleaved with other work.
        """
        if self._is_dirty:
            raise WorkflowTaskError("a query has changed this run; it is replayed from the start")
        events = [HistoryEvent.read(each) for each in history]
        self._note_patch_markers(events)
        self._skip_recorded_commands(events)
        for event in events:
            self._apply_event(event)
            if event.type == named.MARKER:
                yield
        if self._expected is not None:
            self._expected.check_all_matched()

    def advance(self) -> Activation:
        """Run the code on the inputs since the last completed workflow task, and return its commands."""
        if self._unconfirmed is not None:
            raise WorkflowTaskError(
                "the history does not confirm what was sent before; it is replayed from the start"
            )
        self._activate(is_replaying=False)
        return self._pending_activation()

    def replay(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Apply a history without advancing the code beyond it."""
        for _ in self.apply_history(history):
            pass

    def replay_to_end(self, history: Sequence[Mapping[str, Any]]) -> None:
        """Replay a history including its newest inputs, so that the run can be queried. The commands are discarded."""
        self.replay(history)
        if self._runtime is None or self._new_events:
            self._is_silent = True
            self._activate(is_replaying=False)

    @detects_deadlocks
    def resolve_local(self, request_id: str, outcome: Json) -> Activation:
        """Continue the code with the outcome of a local activity, within the same workflow task."""
        runtime = self._started_runtime()
        with self._running(is_replaying=False):
            runtime.resolve_local_activity(request_id, outcome)
            runtime.run()
        self._check_completion()
        return self._pending_activation()

    def is_up_to_date(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a history has no input that the code has not seen, only records of its own commands."""
        if self._runtime is None or self._unconfirmed is None or self._is_dirty or not history:
            return False
        ahead = [HistoryEvent.read(event) for event in history if int(event["sequence"]) > self.seen]
        return (
            not any(named.is_new_input(event) for event in ahead)
            and int(history[-1]["sequence"]) >= self.seen
        )

    def confirm_recorded(self, through: int) -> None:
        """Record that the server has stored the sent commands up to this event, and may start the next history after
        it.
        """
        self._recorded_through = through

    def _skip_recorded_commands(self, events: Sequence[HistoryEvent]) -> None:
        """Accept sent commands as recorded if the server has left their records out."""
        through, self._recorded_through = self._recorded_through, None
        if self._unconfirmed is None or not events or events[0].sequence == self.seen + 1:
            return
        if through is None or events[0].sequence != through + 1:
            raise WorkflowTaskError(
                f"event {events[0].sequence} of the history does not follow event {self.seen}"
            )
        steps = [each.step for each in self._unconfirmed if each.step is not None]
        self._last_step = max([self._last_step, *steps])
        self._unconfirmed, self._expected = None, None
        self.seen = through

    def _note_patch_markers(self, events: Sequence[HistoryEvent]) -> None:
        """Collect patch markers: `patched` is decided at the first call, which may be before its event."""
        self._patches_ahead = {
            str(event.payload.get("change_id")) for event in events if event.type == "VersionMarkerRecorded"
        }
        if self._runtime is not None:
            self._runtime.known_patches |= self._patches_ahead

    def _apply_event(self, event: HistoryEvent) -> None:
        if event.sequence != self.seen + 1:
            raise WorkflowTaskError(
                f"event {event.sequence} of the history does not follow event {self.seen}"
            )
        self.seen = event.sequence
        if event.type == named.MARKER:
            self._replay_recorded_task(event)
        elif self._expected is not None and (event.command_kind is not None or event.is_local_end):
            self._match_recorded(event)
        elif event.command_kind is None:
            self._new_events.append(event)

    def _match_recorded(self, event: HistoryEvent) -> None:
        """Match a recorded command. Records after the close of a run are not the code's."""
        assert self._expected is not None
        if self._ended:
            return
        self._expected.match_command(event)
        self._last_step = max(self._last_step, event.step or 0)
        self._ended = event.command_kind in TERMINAL

    def _replay_recorded_task(self, marker: HistoryEvent) -> None:
        """Handle the marker of a completed task: replay its activation, or recognise it as the one just sent."""
        if self._expected is not None:
            self._expected.check_all_matched()
        if self._unconfirmed is None:
            self._activate(is_replaying=True, through=marker.sequence - 1)
        assert self._runtime is not None
        commands, self._unconfirmed = self._unconfirmed or [], None
        self._expected = ExpectedCommands(
            self._runtime, commands, self._resolve_recorded_local, marker.sequence
        )

    @detects_deadlocks
    def _resolve_recorded_local(self, event: HistoryEvent, outcome: Json) -> list[Command]:
        """On replay, end a local activity with its recorded outcome and return the commands that follow."""
        runtime = self._started_runtime()
        payload = event.payload
        request_id = runtime.find_local_request(payload.get("local_number"), payload.get("activity_type"))
        if request_id is None:
            raise NonDeterminismError(event.sequence, event.in_words(), "no such local activity")
        with self._running(is_replaying=True):
            runtime.resolve_local_activity(request_id, outcome)
            runtime.run()
        runtime.local.clear()
        self._check_completion()
        return runtime.take_commands()

    # ── activations ─────────────────────────────────────────────────────────────────────────────────────

    @detects_deadlocks
    def _activate(self, *, is_replaying: bool, through: int | None = None) -> None:
        """Run the code on the collected inputs. `through` is the last event that it may know of."""
        inputs, self._new_events = self._new_events, []
        is_first = self._runtime is None
        seen = self.seen if through is None else through
        if is_first:
            self._start(inputs, is_replaying=is_replaying, decides_at=seen + 1)
        runtime = self._started_runtime()
        if inputs:
            runtime.set_now(inputs[-1].at)
        runtime.info.history_length = seen
        runtime.decide_at(seen + 1)
        assert self._handlers is not None
        with self._running(is_replaying=is_replaying):
            self._apply(inputs, is_first=is_first)
            runtime.run()
            self._handlers.reject_unhandled_updates()
        if is_replaying:
            runtime.local.clear()
        self._check_completion()
        self._unconfirmed = runtime.take_commands()

    def _apply(self, inputs: Sequence[HistoryEvent], *, is_first: bool) -> None:
        """Apply inputs: signals and updates, then outcomes, then a cancel request."""
        runtime, handlers = self._started_runtime(), self._handlers
        assert handlers is not None
        for event in inputs:
            if event.type in named.MESSAGES:
                handlers.dispatch_message(event)
        for event in inputs:
            if event.type in named.STEP_OUTCOMES:
                runtime.resolve(event)
        for event in inputs:
            if event.type == named.CANCEL:
                self._cancel(event, is_first=is_first)

    def _cancel(self, event: HistoryEvent, *, is_first: bool) -> None:
        """Cancel the run method.

        In the first activation this waits until the run method has reached its first `await`: asyncio never enters a
        coroutine whose task is cancelled before its first step, so the code could neither catch it nor clean up.
        """
        if self._main is None:
            return
        runtime = self._started_runtime()
        runtime.cancel_reason = str(event.payload.get("reason") or "cancel requested")
        if is_first:
            runtime.loop.call_soon(self._main.cancel, runtime.cancel_reason)
        else:
            self._main.cancel(runtime.cancel_reason)

    def _start(self, inputs: Sequence[HistoryEvent], *, is_replaying: bool, decides_at: int) -> None:
        started = next((event for event in inputs if event.type == named.STARTED), None)
        if started is None:
            raise WorkflowTaskError("the history does not begin with the start of the run")
        info = info_of(self._polled_run, started)
        runtime = self._runtime = Runtime(info, self._converter, LOG, self._dispatch)
        runtime.known_patches |= self._patches_ahead
        runtime.copied_history = [(last, run) for last, run in started.payload.get("copied_history") or ()]
        runtime.decide_at(decides_at)
        runtime.set_now(started.at)
        runtime.loop.on_error = self._note_error
        definition = self._definition
        try:
            arguments, headers = self._arguments(started)
        except (ConversionError, WorkflowTaskError) as error:
            if not definition.fails_by(error):
                raise
            self._refuse_input(error)
            return
        info.headers = headers
        self._handlers = Handlers(runtime, definition, ReplayPort(runtime), self._interceptors)
        runtime.loop.penstock_port = self._handlers.port  # type: ignore[attr-defined]
        with self._running(is_replaying=is_replaying):
            take = arguments if definition.takes_input else ()
            runtime.instance = runtime.loop.context.run(definition.cls, *take)
            self._main = runtime.loop.create_task(
                self._handlers.execute(definition.run, arguments, headers),
                name=f"run of {info.workflow_type}",
            )

    def _refuse_input(self, error: Exception) -> None:
        """Let the run fail by the error of its arguments, as its definition says. Its messages find no handler."""
        runtime = self._started_runtime()
        refusing = replace(self._definition, signals={}, queries={}, updates={})

        async def refuse() -> None:
            raise error

        self._handlers = Handlers(runtime, refusing, ReplayPort(runtime))
        self._main = runtime.loop.create_task(refuse(), name="refusal of the arguments")

    def _arguments(self, started: HistoryEvent) -> tuple[list[Any], dict[str, Any]]:
        definition, payload = self._definition, started.payload
        blob = self._polled_run.arguments
        if blob is None:
            blob = next((payload[name] for name in _ARGUMENTS if payload.get(name)), None)
        if definition.name is None:
            received, headers = self._converter.decode_raw_call(blob)
            return run_arguments(definition, received), headers
        values, headers = self._converter.decode_call(blob, definition.parameters.types)
        if not definition.parameters.accepts(len(values)):
            raise WorkflowTaskError(
                f'workflow "{definition.name}" takes {definition.parameters.in_words()} arguments, and this run was '
                f"started with {len(values)}"
            )
        return values, headers

    @contextmanager
    def _running(self, *, is_replaying: bool) -> Iterator[None]:
        """Run workflow code in the block: on its event loop, with deadlock detection, and guarded unless it is a
        replay.
        """
        runtime = self._started_runtime()
        runtime.is_replaying = is_replaying
        runtime.is_silent = is_replaying or self._is_silent
        before, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(runtime.loop)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=runtime.loop.finish)
        try:
            with DeadlockDetector(self._stuck_after_s):
                if is_replaying or not self._is_guarded:
                    yield
                else:
                    with DeterminismGuard() as watch:
                        yield
                    if watch.violation is not None:
                        raise watch.violation
        except BaseException as error:
            runtime.is_silent = True  # the rest of the code must not log
            if isinstance(error, SystemExit | GeneratorExit):
                raise _illegal_exit(error) from error
            raise
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(before)

    # ── completion ──────────────────────────────────────────────────────────────────────────────────────

    def _check_completion(self) -> None:
        """Issue the command that closes the run if its code has ended, or if a signal handler has failed."""
        assert self._handlers is not None
        error = self._handlers.take_error()
        main = self._main
        if self._closed or main is None:
            return
        if error is not None:
            self._complete_run(*self._failure_command(error))
        elif main.done():
            self._complete_run(*self._completion_command(main))

    def _complete_run(self, kind: CommandKind, body: Json) -> None:
        self._closed = True
        runtime = self._started_runtime()
        if not runtime.is_silent and self._handlers is not None:
            self._handlers.warn_of_unfinished()
        runtime.local.clear()
        runtime.commands.append(
            Command(kind, body, where=f"at the end of {self._definition.cls.__qualname__}")
        )

    def _completion_command(self, main: asyncio.Task[Any]) -> tuple[CommandKind, Json]:
        runtime = self._started_runtime()
        if main.cancelled():
            return CommandKind.CANCEL, {"reason": runtime.cancel_reason or CANCELLED_BY_ITSELF}
        error = main.exception()
        if error is None:
            what = f'result of workflow "{runtime.info.workflow_type}"'
            return CommandKind.COMPLETE, {"result": self._converter.encode(main.result(), what)}
        return self._failure_command(error)

    def _failure_command(self, error: BaseException) -> tuple[CommandKind, Json]:
        """Return the command for an error. Deliberate failures close the run; any other error fails the task.

        After a cancel request, an uncaught cancellation of an activity or a child counts as cancellation of the run.
        """
        again = sole_exception(error)
        if isinstance(again, ContinueAsNewError):
            return CommandKind.CONTINUE, again.body
        cancel_reason = self._started_runtime().cancel_reason
        if cancel_reason is not None and _is_cancellation(error):
            return CommandKind.CANCEL, {"reason": cancel_reason}
        failure = self._definition.failure_in(error)
        if failure is not None:
            return CommandKind.FAIL, failure_fields(failure, self._converter)
        if not isinstance(error, Exception):
            raise _illegal_exit(error) from error
        if type(error).__module__.startswith("temporalio"):
            raise WorkflowTaskError(
                f"{type(error).__name__} of temporalio: {error}. The code calls temporalio, which knows no run of"
                " ours: import `workflow` from penstock. `penstock migrate temporal PATH` rewrites the imports"
            ) from error
        raise error

    def _pending_activation(self) -> Activation:
        runtime = self._started_runtime()
        self._unconfirmed = [*(self._unconfirmed or []), *runtime.take_commands()]
        if len(self._unconfirmed) > COMMANDS_MAX:
            raise WorkflowTaskError(
                f"the code issued {len(self._unconfirmed)} commands at once; the limit is {COMMANDS_MAX}: start them "
                "in batches, or in child workflows"
            )
        local, runtime.local = runtime.local, []
        self._assign_step_numbers(self._unconfirmed)
        self._run_dispatch_traces(self._unconfirmed)
        origins = [f"{each.in_words()} {each.where}".rstrip() for each in self._unconfirmed]
        commands, inboxes = [each.on_the_wire() for each in self._unconfirmed], runtime.inboxes
        return Activation(
            commands, local, self._closed, origins, inboxes.cursors_on_the_wire(), inboxes.waits_on_the_wire()
        )

    def _assign_step_numbers(self, commands: Sequence[Command]) -> None:
        """Assign the step numbers that the server will assign."""
        step = self._last_step
        for command in commands:
            if command.kind in NUMBERED:
                step += 1
                self._started_runtime().confirm(command, step)

    def _run_dispatch_traces(self, commands: Sequence[Command]) -> None:
        """Log the dispatch of each command once, when it is about to be sent."""
        for command in commands:
            if command.trace is not None:
                command.trace()
                command.trace = None

    @detects_deadlocks
    def close(self) -> None:
        """Evict the run: its code is ended where it stands."""
        if self._runtime is None:
            return
        try:
            with DeadlockDetector(self._stuck_after_s):
                self._runtime.close()
        except Exception as error:
            LOG.warning("Code of run %s did not end in peace: %s", self._polled_run.run_id, error)

    def _note_error(self, context: Json) -> None:
        if self._runtime is not None and not self._runtime.is_silent:
            LOG.warning("%s", context.get("message"), exc_info=context.get("exception"))

    def _started_runtime(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    # ── queries and validators ──────────────────────────────────────────────────────────────────────────

    def query(self, name: str, arguments: Any) -> dict[str, str]:
        """Run a query handler and return the encoded result. Raises `LookupError` for an unknown name."""
        answer: dict[str, str] = self._query_state(
            "a query", lambda handlers: handlers.query(name, arguments)
        )
        return answer

    def validate_update(self, name: str, arguments: Any) -> None:
        """Run the validator of an update. Whatever it raises is the rejection."""
        self._query_state("a validator", lambda handlers: handlers.validate(name, arguments))

    @detects_deadlocks
    def _query_state(self, who: str, question: Callable[[Handlers], Any]) -> Any:
        runtime = self._started_runtime()
        assert self._handlers is not None
        runtime.is_read_only = who
        try:
            with self._running(is_replaying=False):
                return runtime.loop.context.copy().run(question, self._handlers)
        finally:
            runtime.is_read_only = None
            if runtime.loop.is_ready:
                self._is_dirty = True
                raise ReadOnlyError(
                    f"{who} must not wake the code of the run: it is replayed from the start."
                )
