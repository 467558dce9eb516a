"""Matches the commands of workflow code with those in the history: `replay-is-deterministic`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.sdk.replay.commands import NUMBERED, Command, CommandKind
from penstock.sdk.replay.errors import NonDeterminismError, WorkflowTaskError
from penstock.sdk.replay.events import HistoryEvent, may_be_skipped, records_command
from penstock.sdk.replay.runtime import LOCAL_OUTCOMES, Runtime

Json = dict[str, Any]
_OUTCOMES = {
    "ActivityCompleted": "completed",
    "ActivityFailed": "failed",
    "ActivityTimedOut": "timed_out",
    "ActivityCancelled": "cancelled",
}


class ExpectedCommands:
    """The commands of one activation that the history must confirm. Local activities end in the recorded order."""

    def __init__(
        self,
        runtime: Runtime,
        commands: Sequence[Command],
        commands_after_local: Callable[[HistoryEvent, Json], list[Command]],
        marker: int,
    ) -> None:
        self._runtime = runtime
        self._commands = deque(commands)
        self._commands_after_local = commands_after_local
        self._local_scheduled: HistoryEvent | None = None
        self._last_sequence = marker

    def match_command(self, event: HistoryEvent) -> None:
        """Match one recorded command. Raises `NonDeterminismError` if the code issued a different one."""
        self._last_sequence = event.sequence
        if event.command_kind is CommandKind.LOCAL_ACTIVITY:
            self._local_scheduled = event
            return
        if event.is_local_end:
            self._match_local_outcome(event)
            return
        if self._commands and records_command(event, self._commands[0]):
            self._match(self._commands.popleft(), event)
            return
        if may_be_skipped(event):
            return
        issued = self._commands[0] if self._commands else None
        raise NonDeterminismError(
            event.sequence,
            event.in_words(),
            "nothing more" if issued is None else issued.in_words(),
            "" if issued is None else issued.where,
        )

    def _match_local_outcome(self, event: HistoryEvent) -> None:
        """Match the outcome of a local activity, after running the code to where it requested the activity."""
        known = self._commands[0] if self._commands else None
        if known is None or known.kind is not CommandKind.LOCAL_ACTIVITY:
            self._commands.extend(self._commands_after_local(event, _recorded_outcome(event)))
        command = self._commands.popleft() if self._commands else None
        if command is None or not (
            self._local_scheduled is not None and records_command(self._local_scheduled, command)
        ):
            issued = "nothing more" if command is None else command.in_words()
            raise NonDeterminismError(event.sequence, event.in_words(), issued)
        self._match(command, event)

    def _match(self, command: Command, event: HistoryEvent) -> None:
        step = event.step if command.kind in NUMBERED else None
        if command.step is not None and step is not None and command.step != step:
            raise WorkflowTaskError(
                f"step {command.step} was recorded as step {step}; it is replayed from the start"
            )
        self._runtime.confirm(command, step)

    def check_all_matched(self) -> None:
        """Raise if the code issued more commands than the history has."""
        if self._commands:
            left = self._commands[0]
            raise NonDeterminismError(
                self._last_sequence + 1, "something else, or the end of the task", left.in_words(), left.where
            )


def _recorded_outcome(event: HistoryEvent) -> Json:
    outcome: Json = {"outcome": _OUTCOMES[event.type]}
    outcome |= {name: event.payload[name] for name in LOCAL_OUTCOMES if name in event.payload}
    if event.type == "ActivityCompleted":
        outcome["result"] = event.payload.get("result")
    return outcome
