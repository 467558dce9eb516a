"""Compares what code asks for with what its history says that it asked for: `replay-is-deterministic`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.sdk.replay.events import Event, is_of, may_be_missing
from penstock.sdk.replay.problems import NonDeterminismError, WorkflowTaskError
from penstock.sdk.replay.runtime import LOCAL_TOLD, Runtime
from penstock.sdk.replay.steps import NUMBERED, Command, Kind

Json = dict[str, Any]
_OUTCOMES = {
    "ActivityCompleted": "completed",
    "ActivityFailed": "failed",
    "ActivityTimedOut": "timed_out",
    "ActivityCancelled": "cancelled",
}


class Expected:
    """Commands of one activation that the history must confirm. Local activities end in the order recorded."""

    def __init__(
        self,
        runtime: Runtime,
        commands: Sequence[Command],
        more: Callable[[Event, Json], list[Command]],
        marker: int,
    ) -> None:
        self._runtime = runtime
        self._commands = deque(commands)
        self._more = more
        self._local: Event | None = None
        self._last_sequence = marker

    def take(self, event: Event) -> None:
        """One recorded command. Raises `NonDeterminismError` if the code asked for something else."""
        self._last_sequence = event.sequence
        if event.asked is Kind.LOCAL_ACTIVITY:
            self._local = event
            return
        if event.is_local_end:
            self._end_local(event)
            return
        if self._commands and is_of(event, self._commands[0]):
            self._confirm(self._commands.popleft(), event)
            return
        if may_be_missing(event):
            return
        asked = self._commands[0] if self._commands else None
        raise NonDeterminismError(
            event.sequence,
            event.in_words(),
            "nothing more" if asked is None else asked.in_words(),
            "" if asked is None else asked.where,
        )

    def _end_local(self, event: Event) -> None:
        """A local activity was recorded here: if the code has not asked for it yet, it is run to where it has."""
        known = self._commands[0] if self._commands else None
        if known is None or known.kind is not Kind.LOCAL_ACTIVITY:
            told: Json = {"outcome": _OUTCOMES[event.type]}
            told |= {name: event.payload[name] for name in LOCAL_TOLD if name in event.payload}
            if event.type == "ActivityCompleted":
                told["result"] = event.payload.get("result")
            self._commands.extend(self._more(event, told))
        command = self._commands.popleft() if self._commands else None
        if command is None or not (self._local is not None and is_of(self._local, command)):
            asked = "nothing more" if command is None else command.in_words()
            raise NonDeterminismError(event.sequence, event.in_words(), asked)
        self._confirm(command, event)

    def _confirm(self, command: Command, event: Event) -> None:
        step = event.step if command.kind in NUMBERED else None
        if command.step is not None and step is not None and command.step != step:
            raise WorkflowTaskError(f"step {command.step} was recorded as step {step}; it is replayed anew")
        self._runtime.confirm(command, step)

    def check_over(self) -> None:
        """Nothing may be left that the code asks for and the history does not have."""
        if self._commands:
            left = self._commands[0]
            raise NonDeterminismError(
                self._last_sequence + 1, "something else, or the end of the task", left.in_words(), left.where
            )
