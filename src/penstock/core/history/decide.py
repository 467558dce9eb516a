"""From the state of a run and the commands of a completed workflow task to events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from penstock.core.history import cancellation, command_effects, parallel_groups
from penstock.core.history.command_effects import CommandContext, CommandEffects, invalid_command
from penstock.core.history.commands import (
    CancelSelectionOperation,
    Command,
    ConcurrentOnly,
    Grouped,
    OnUpdate,
    OpenConditionWait,
    OpenSignalWait,
    StepwiseOnly,
)
from penstock.core.history.structural_limits import StructuralLimits, check_commands
from penstock.core.model import Json, Run, RunId, Update
from penstock.core.waits import Waits


def advance(
    run: Run,
    commands: Sequence[Command],
    bounds: StructuralLimits,
    now_ms: int,
    *,
    ids: Sequence[RunId] = (),
    update: Update | None = None,
    concurrent: bool = False,
    accepted: Mapping[str, Update] | None = None,
    unapplied_signals: Mapping[str, list[Json]] | None = None,
) -> CommandEffects:
    """Apply the commands of a workflow task in order. Steps are numbered densely from 1, independently of events.

    Args:
        run: the run as it was when the task was completed.
        commands: the commands of the completion.
        bounds: the structural limits to check first.
        now_ms: the time of the transaction.
        ids: ids for runs that the commands start, one for each command.
        update: the update that the task applies, if it is an update's task.
        concurrent: whether the code is concurrent.
        accepted: updates that the commands refer to, by id.
        unapplied_signals: payloads of received signals that no wait has taken, by name.
    """
    _check_concurrency(run, commands, concurrent=concurrent)
    context = CommandContext(
        run, now_ms, tuple(ids), update, concurrent, accepted or {}, unapplied_signals or {}
    )
    if concurrent:
        check_commands(run, commands, bounds)
        for command in commands:
            context.apply(command)
        return context.done()
    _check_kind(commands, update)
    if update is not None:
        context.apply(commands[0])
        return context.done()
    placed = _placed(run, context.waits, commands)
    check_commands(run, placed, bounds)
    context.release_held()
    if _is_still_waiting(context.waits, placed):
        return context.done()
    command_effects.satisfy(context)
    for command in placed:
        context.apply(command)
    context.wakes |= cancellation.leaves_code_ready(placed, context.waits)
    return context.done()


def _check_concurrency(run: Run, commands: Sequence[Command], *, concurrent: bool) -> None:
    """A run stays stepwise or concurrent from its first completed task on."""
    began = run.waits.concurrent
    if began and not concurrent:
        raise invalid_command("The run is concurrent: only concurrent workflow code can continue it.")
    if concurrent and not began and run.last_step:
        raise invalid_command("The run is stepwise: concurrent workflow code cannot continue it.")
    kind, others = ("concurrent", StepwiseOnly) if concurrent else ("stepwise", ConcurrentOnly)
    wrong = next((each for each in commands if isinstance(each, others)), None)
    if wrong is not None:
        raise invalid_command(f"{type(wrong).__name__} is not for a {kind} run.")
    if concurrent and any(map(_is_grouped, commands)):
        raise invalid_command("Steps of a concurrent run cannot be in groups.")


def _is_grouped(command: Command) -> bool:
    return isinstance(command, Grouped) and parallel_groups.outermost(command.extra) is not None


def _check_kind(commands: Sequence[Command], update: Update | None) -> None:
    """An update's task applies only that update; no other task of a stepwise run applies one."""
    on_update = [each for each in commands if isinstance(each, OnUpdate)]
    if update is None and on_update:
        raise invalid_command("This workflow task does not apply an update.")
    if update is not None and (
        len(commands) != 1 or not on_update or on_update[0].update_id != update.update_id
    ):
        raise invalid_command(f"This workflow task applies update {update.update_id}, and nothing else.")


def _is_still_waiting(waiting: Waits, commands: Sequence[Command]) -> bool:
    """Whether the commands change nothing: the code waits for the same signal, or for the same condition without a
    message since.

    Cancellations of selection members are repeated by every completion; they have no effect after the first.
    """
    open_wait = waiting.condition
    new = [each for each in commands if not _is_given_up(waiting, each)]
    if waiting.signal is not None and not waiting.signal.applied and len(new) == 1:
        return isinstance(new[0], OpenSignalWait) and new[0].name == waiting.signal.name
    if open_wait is None or open_wait.heard or len(new) != 1:
        return False
    command = new[0]
    return (
        isinstance(command, OpenConditionWait)
        and not command.extra.get(parallel_groups.PATH)
        and open_wait.is_same(command.key, command.fingerprint)
    )


def _is_given_up(waiting: Waits, command: Command) -> bool:
    return (
        isinstance(command, CancelSelectionOperation)
        and command_effects.abandoned_member(waiting, command) is None
    )


def _placed(run: Run, waiting: Waits, commands: Sequence[Command]) -> list[Command]:
    """The commands without members of groups that are open already, each with its step number.

    A worker that ran before its group was complete sends the whole group again. After a selection or a cancellation
    its step numbers may be off; its groups are renumbered.
    """
    placed: list[Command] = []
    step = run.last_step
    shifts: dict[str, int] = {}
    for command in commands:
        if isinstance(command, Grouped) and (outer := parallel_groups.outermost(command.extra)) is not None:
            if _is_open(run, waiting, command):
                continue
            group_id = parallel_groups.group_id(outer)
            if group_id not in shifts:
                shifts[group_id] = _shift(waiting, command, step + 1)
            if shifts[group_id]:
                command = replace(command, extra=parallel_groups.moved(command.extra, shifts[group_id]))
            _check_step(command, step + 1)
        placed.append(command)
        step += command_effects.is_step(command)
    return placed


def _is_open(run: Run, waiting: Waits, command: Grouped) -> bool:
    outer = parallel_groups.outermost(command.extra)
    assert outer is not None
    if waiting.old and not waiting.selected:
        return (parallel_groups.step_of(command.extra) or 0) <= run.last_step
    group_id = parallel_groups.group_id(outer)
    return group_id in waiting.groups or waiting.selection(group_id) is not None


def _shift(waiting: Waits, command: Grouped, step: int) -> int:
    """The offset of the worker's step numbers, which may be off only after a selection or a cancellation."""
    named = parallel_groups.step_of(command.extra)
    return step - named if waiting.selected and named is not None else 0


def _check_step(command: Grouped, step: int) -> None:
    named = parallel_groups.step_of(command.extra)
    if named != step or not parallel_groups.is_consistent(command.extra):
        raise invalid_command(
            f"A member of a parallel group is numbered {named} where the run's next step is {step}.",
            expected_sequence=step,
        )
