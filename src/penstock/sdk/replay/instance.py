"""One run of a workflow in memory: fed with its history, it says what its code asks for next."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.sdk.converting import DataConverter
from penstock.sdk.definitions import WorkflowDefinition, sole_exception
from penstock.sdk.dispatching import InForce, no_configuration
from penstock.sdk.failures import failure_fields, is_cancelled_exception
from penstock.sdk.replay import events as named
from penstock.sdk.replay.continuing import ContinueAsNewError
from penstock.sdk.replay.events import Event
from penstock.sdk.replay.guard import Guarded
from penstock.sdk.replay.handling import Handlers
from penstock.sdk.replay.info import Place, info_of
from penstock.sdk.replay.matching import Expected
from penstock.sdk.replay.problems import NonDeterminismError, ReadOnlyError, WorkflowTaskError
from penstock.sdk.replay.runtime import LocalRequest, Runtime
from penstock.sdk.replay.steps import NUMBERED, TERMINAL, Command, Kind
from penstock.sdk.replay.watching import GivingWayWithin, watched

LOG = logging.getLogger("penstock.workflow")
STUCK_AFTER_S = 2.0
CANCELLED_BY_ITSELF = "cancelled by its own code"
"""The reason of a run whose run method ended with `asyncio.CancelledError` without a cancel request."""
COMMANDS_MAX = 10_000
"""So much a server takes with one workflow task."""
Json = dict[str, Any]
_ARGUMENTS = ("arguments", "input", "input_envelope")


@dataclass(frozen=True, slots=True)
class Activation:
    """What the code asks for now: commands to send, and local activities to run before they are sent."""

    commands: list[Json] = field(default_factory=list)
    local: list[LocalRequest] = field(default_factory=list)
    closes: bool = False
    """Whether the run ends with these commands."""
    origins: list[str] = field(default_factory=list)
    """Of each command what it is, and the line of the code that asked for it."""


def _ended_by(error: BaseException) -> WorkflowTaskError:
    """What no code may do to its worker is an error of its task."""
    return WorkflowTaskError(
        f"workflow code raised {type(error).__name__} ({error}); let it return, or raise an ApplicationError"
    )


def _is_cancellation(error: BaseException) -> bool:
    """Whether an error says that something was cancelled; of a group: whether each of its errors does."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_cancellation(each) for each in error.exceptions)
    return is_cancelled_exception(error)


class WorkflowRun:
    """A run that is kept. Events come in order, each once; what was sent is confirmed by the events that follow."""

    def __init__(
        self,
        definition: WorkflowDefinition,
        place: Place,
        converter: DataConverter,
        *,
        is_guarded: bool = True,
        stuck_after_s: float | None = STUCK_AFTER_S,
        interceptors: Sequence[Any] = (),
        dispatch: InForce = no_configuration,
    ) -> None:
        self._definition = definition
        self._place = place
        self._converter = converter
        self._is_guarded = is_guarded and definition.is_guarded
        self._stuck_after_s = stuck_after_s
        self._interceptors = tuple(interceptors)
        self._dispatch = dispatch
        self._runtime: Runtime | None = None
        self._handlers: Handlers | None = None
        self._main: asyncio.Task[Any] | None = None
        self._inputs: list[Event] = []
        self._expected: Expected | None = None
        """What the history must say next: the commands of an activation that is recorded."""
        self._sent: list[Command] | None = None
        """Commands of an activation that is not recorded yet."""
        self._closed = False
        """Whether the code has ended."""
        self._ended = False
        """Whether the history says so."""
        self._is_silent = False
        self._recorded_through: int | None = None
        self._is_spoiled = False
        """Whether somebody who may only look has changed something."""
        self._last_step = 0
        self.seen = 0
        """The last event that was looked at."""

    # ── going on ────────────────────────────────────────────────────────────────────────────────────────

    def activate(self, lines: Sequence[Mapping[str, Any]]) -> Activation:
        """Take in what is new; then let the code go on. Raises a `WorkflowTaskError` if it cannot."""
        for _ in self.take_in(lines):
            pass
        return self.go_on()

    def take_in(self, lines: Sequence[Mapping[str, Any]]) -> Iterator[None]:
        """Take in a history as far as it was decided, task by task: in between others may have their turn."""
        if self._is_spoiled:
            raise WorkflowTaskError("a query has changed this run; it is replayed anew")
        events = [Event.read(line) for line in lines]
        self._note_patches(events)
        self._skip_echo(events)
        for event in events:
            self._take(event)
            if event.type == named.MARKER:
                yield
        if self._expected is not None:
            self._expected.check_over()

    def go_on(self) -> Activation:
        """Let the code go on with what came in since it was decided last; what it asks for."""
        if self._sent is not None:
            raise WorkflowTaskError("the history does not confirm what was sent before; it is replayed anew")
        self._activate(is_replaying=False)
        return self._asked()

    def replay(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Take in a history as far as it was decided; the code does not go beyond it."""
        for _ in self.take_in(lines):
            pass

    def catch_up(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Bring a run that nobody keeps to where its history stands, so that it can be asked something."""
        self.replay(lines)
        if self._runtime is None or self._inputs:
            self._is_silent = True
            self._activate(is_replaying=False)

    @watched
    def resolve_local(self, request_id: str, told: Json) -> Activation:
        """A local activity has ended: the code goes on within the same workflow task."""
        runtime = self._live()
        with self._running(is_replaying=False):
            runtime.end_local(request_id, told)
            runtime.run()
        self._look_at_end()
        return self._asked()

    def is_up_to_date(self, lines: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a history tells nothing that the code has not heard: all that is new is what it asked for itself."""
        if self._runtime is None or self._sent is None or self._is_spoiled or not lines:
            return False
        ahead = [Event.read(line) for line in lines if int(line["sequence"]) > self.seen]
        return not any(named.comes_in(event) for event in ahead) and int(lines[-1]["sequence"]) >= self.seen

    def keep(self, through: int) -> None:
        """The server has recorded what was sent, up to an event; of that it will tell nothing more."""
        self._recorded_through = through

    def _skip_echo(self, events: Sequence[Event]) -> None:
        """A server that knows what this run was sent does not repeat what it recorded of it: it is as it was asked."""
        through, self._recorded_through = self._recorded_through, None
        if self._sent is None or not events or events[0].sequence == self.seen + 1:
            return
        if through is None or events[0].sequence != through + 1:
            raise WorkflowTaskError(
                f"event {events[0].sequence} of the history does not follow event {self.seen}"
            )
        steps = [each.step for each in self._sent if each.step is not None]
        self._last_step = max([self._last_step, *steps])
        self._sent, self._expected = None, None
        self.seen = through

    def _note_patches(self, events: Sequence[Event]) -> None:
        """Markers decide at the first call, which may come before the event is reached."""
        self._patches_ahead = {
            str(event.payload.get("change_id")) for event in events if event.type == "VersionMarkerRecorded"
        }
        if self._runtime is not None:
            self._runtime.known_patches |= self._patches_ahead

    def _take(self, event: Event) -> None:
        if event.sequence != self.seen + 1:
            raise WorkflowTaskError(
                f"event {event.sequence} of the history does not follow event {self.seen}"
            )
        self.seen = event.sequence
        if event.type == named.MARKER:
            self._begin_recorded(event)
        elif self._expected is not None and (event.asked is not None or event.is_local_end):
            self._confirm(event)
        elif event.asked is None:
            self._inputs.append(event)

    def _confirm(self, event: Event) -> None:
        """The history says that the code asked for something. What follows the end of a run is not the code's."""
        assert self._expected is not None
        if self._ended:
            return
        self._expected.take(event)
        self._last_step = max(self._last_step, event.step or 0)
        self._ended = event.asked in TERMINAL

    def _begin_recorded(self, marker: Event) -> None:
        """A workflow task was completed here: run it again, or recognise it as the one that was sent."""
        if self._expected is not None:
            self._expected.check_over()
        if self._sent is None:
            self._activate(is_replaying=True, through=marker.sequence - 1)
        assert self._runtime is not None
        commands, self._sent = self._sent or [], None
        self._expected = Expected(self._runtime, commands, self._more_by_local, marker.sequence)

    @watched
    def _more_by_local(self, event: Event, told: Json) -> list[Command]:
        """On replay: a local activity ends as it was recorded; what the code asks for then."""
        runtime = self._live()
        said = event.payload
        request_id = runtime.local_numbered(said.get("local_number"), said.get("activity_type"))
        if request_id is None:
            raise NonDeterminismError(event.sequence, event.in_words(), "no such local activity")
        with self._running(is_replaying=True):
            runtime.end_local(request_id, told)
            runtime.run()
        runtime.local.clear()
        self._look_at_end()
        return runtime.take_commands()

    # ── an activation ───────────────────────────────────────────────────────────────────────────────────

    @watched
    def _activate(self, *, is_replaying: bool, through: int | None = None) -> None:
        """Let the code go on with what came in, up to an event (the last one that was taken in)."""
        inputs, self._inputs = self._inputs, []
        is_first = self._runtime is None
        if is_first:
            self._start(inputs, is_replaying=is_replaying)
        runtime = self._live()
        if inputs:
            runtime.set_now(inputs[-1].at)
        runtime.info.history_length = self.seen if through is None else through
        assert self._handlers is not None
        with self._running(is_replaying=is_replaying):
            self._apply(inputs, is_first=is_first)
            runtime.run()
            self._handlers.refuse_unheard()
        if is_replaying:
            runtime.local.clear()
        self._look_at_end()
        self._sent = runtime.take_commands()

    def _apply(self, inputs: Sequence[Event], *, is_first: bool) -> None:
        """Signals and updates first, so that code which ends now has heard them; then outcomes; then a cancel.

        A cancel that comes with the start waits for the run method to reach its first `await`: asyncio never enters a
        coroutine whose task is cancelled before its first step, so the code could neither catch it nor clean up.
        """
        runtime, handlers = self._live(), self._handlers
        assert handlers is not None
        for event in inputs:
            if event.type in named.HEARD:
                handlers.hear(event)
        for event in inputs:
            if event.type in named.ENDS_OF_STEPS:
                runtime.resolve(event)
        for event in inputs:
            if event.type == named.CANCEL and self._main is not None:
                runtime.cancel_reason = str(event.payload.get("reason") or "cancel requested")
                if is_first:
                    runtime.loop.call_soon(self._main.cancel, runtime.cancel_reason)
                else:
                    self._main.cancel(runtime.cancel_reason)

    def _start(self, inputs: Sequence[Event], *, is_replaying: bool) -> None:
        started = next((event for event in inputs if event.type == named.STARTED), None)
        if started is None:
            raise WorkflowTaskError("the history does not begin with the start of the run")
        info = info_of(self._place, started)
        runtime = self._runtime = Runtime(info, self._converter, LOG, self._dispatch)
        runtime.known_patches |= self._patches_ahead
        runtime.set_now(started.at)
        runtime.loop.on_error = self._note_error
        definition = self._definition
        arguments = self._arguments(started)
        self._handlers = Handlers(runtime, definition, self._interceptors)
        with self._running(is_replaying=is_replaying):
            take = arguments if definition.takes_input else ()
            runtime.instance = runtime.loop.context.run(definition.cls, *take)
            self._main = runtime.loop.create_task(
                self._handlers.execute(definition.run, arguments), name=f"run of {info.workflow_type}"
            )

    def _arguments(self, started: Event) -> list[Any]:
        definition, said = self._definition, started.payload
        blob = self._place.arguments
        if blob is None:
            blob = next((said[name] for name in _ARGUMENTS if said.get(name)), None)
        if definition.name is None:
            return [self._converter.decode_arguments(blob)]
        values = self._converter.decode_arguments(blob, definition.parameters.types)
        if not definition.parameters.accepts(len(values)):
            raise WorkflowTaskError(
                f'workflow "{definition.name}" takes {definition.parameters.in_words()} arguments, and this run was '
                f"started with {len(values)}"
            )
        return values

    @contextmanager
    def _running(self, *, is_replaying: bool) -> Iterator[None]:
        """The code runs inside: watched, told whether it is for the first time, and then guarded, too."""
        runtime = self._live()
        runtime.is_replaying = is_replaying
        runtime.is_silent = is_replaying or self._is_silent
        before, hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()
        asyncio._set_running_loop(runtime.loop)
        sys.set_asyncgen_hooks(firstiter=None, finalizer=runtime.loop.finish)
        try:
            with GivingWayWithin(self._stuck_after_s):
                if is_replaying or not self._is_guarded:
                    yield
                else:
                    with Guarded() as watch:
                        yield
                    if watch.violation is not None:
                        raise watch.violation
        except BaseException as error:
            runtime.is_silent = True  # what is left of the code is of no interest
            if isinstance(error, SystemExit | GeneratorExit):
                raise _ended_by(error) from error
            raise
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(before)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────

    def _look_at_end(self) -> None:
        """Say how the run ends, if its code has ended; a signal whose handler failed ends it, too."""
        assert self._handlers is not None
        error = self._handlers.take_error()
        main = self._main
        if self._closed or main is None:
            return
        if error is not None:
            self._end(*self._failed(error))
        elif main.done():
            self._end(*self._ending(main))

    def _end(self, kind: Kind, body: Json) -> None:
        self._closed = True
        runtime = self._live()
        runtime.local.clear()
        runtime.commands.append(
            Command(kind, body, where=f"at the end of {self._definition.cls.__qualname__}")
        )

    def _ending(self, main: asyncio.Task[Any]) -> tuple[Kind, Json]:
        runtime = self._live()
        if main.cancelled():
            return Kind.CANCEL, {"reason": runtime.cancel_reason or CANCELLED_BY_ITSELF}
        error = main.exception()
        if error is None:
            what = f'result of workflow "{runtime.info.workflow_type}"'
            return Kind.COMPLETE, {"result": self._converter.encode(main.result(), what)}
        return self._failed(error)

    def _failed(self, error: BaseException) -> tuple[Kind, Json]:
        """A failure that was meant ends the run; any other error is a mistake, and the task is tried again.

        After a cancel request, the cancellation of an activity or a child that no code caught is that of the run.
        """
        again = sole_exception(error)
        if isinstance(again, ContinueAsNewError):
            return Kind.CONTINUE, again.body
        asked_to_end = self._live().cancel_reason
        if asked_to_end is not None and _is_cancellation(error):
            return Kind.CANCEL, {"reason": asked_to_end}
        failure = self._definition.failure_in(error)
        if failure is not None:
            return Kind.FAIL, failure_fields(failure, self._converter)
        if not isinstance(error, Exception):
            raise _ended_by(error) from error
        raise error

    def _asked(self) -> Activation:
        runtime = self._live()
        self._sent = [*(self._sent or []), *runtime.take_commands()]
        if len(self._sent) > COMMANDS_MAX:
            raise WorkflowTaskError(
                f"the code asks for {len(self._sent)} things at once, and may for {COMMANDS_MAX}: start them in "
                "portions, or in child workflows"
            )
        local, runtime.local = runtime.local, []
        self._number(self._sent)
        self._trace(self._sent)
        origins = [f"{each.in_words()} {each.where}".rstrip() for each in self._sent]
        return Activation([each.on_the_wire() for each in self._sent], local, self._closed, origins)

    def _number(self, commands: Sequence[Command]) -> None:
        """The numbers that the server will give."""
        step = self._last_step
        for command in commands:
            if command.kind in NUMBERED:
                step += 1
                self._live().confirm(command, step)

    def _trace(self, commands: Sequence[Command]) -> None:
        """Each is told of once: when the code has done all it can, and what it asks for is sent."""
        for command in commands:
            if command.trace is not None:
                command.trace()
                command.trace = None

    @watched
    def close(self) -> None:
        """Forget the run; its code is ended where it stands."""
        if self._runtime is None:
            return
        try:
            with GivingWayWithin(self._stuck_after_s):
                self._runtime.close()
        except Exception as error:
            LOG.warning("Code of run %s did not end in peace: %s", self._place.run_id, error)

    def _note_error(self, context: Json) -> None:
        if self._runtime is not None and not self._runtime.is_silent:
            LOG.warning("%s", context.get("message"), exc_info=context.get("exception"))

    def _live(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    # ── questions ───────────────────────────────────────────────────────────────────────────────────────

    def query(self, name: str, arguments: Any) -> dict[str, str]:
        """The answer of the code, as it stands. An unknown name raises `LookupError`."""
        answer: dict[str, str] = self._ask("a query", lambda handlers: handlers.query(name, arguments))
        return answer

    def validate_update(self, name: str, arguments: Any) -> None:
        """Let the code say whether it takes an update; whatever it raises is its refusal."""
        self._ask("a validator", lambda handlers: handlers.validate(name, arguments))

    @watched
    def _ask(self, who: str, question: Callable[[Handlers], Any]) -> Any:
        runtime = self._live()
        assert self._handlers is not None
        runtime.is_read_only = who
        try:
            with self._running(is_replaying=False):
                return runtime.loop.context.copy().run(question, self._handlers)
        finally:
            runtime.is_read_only = None
            if runtime.loop.is_ready:
                self._is_spoiled = True
                raise ReadOnlyError(f"{who} must not wake the code of the run: it is replayed anew.")
