"""Random programs: a workflow that interprets a list of steps, and lists of steps from a seed."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

from durable_workflow import workflow
from durable_workflow.errors import ActivityFailed, ChildWorkflowFailed, DurableOperationCancelled

Steps = Generator[Any, Any, Any]
Program = list[list[Any]]
HOUR = 3600
WORDS_MAX = 6


@workflow.defn(name="program")
class Interpreter:
    """Does one step after the other, and tells what each of them brought."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @workflow.signal("hear")
    def hear(self, word: Any) -> None:
        self.heard.append(word)

    @workflow.update("tell")
    def tell(self, word: Any) -> int:
        self.heard.append(word)
        return len(self.heard)

    @workflow.query("heard")
    def shown(self) -> list[Any]:
        return list(self.heard)

    def run(self, ctx: Any, program: Program, before: list[Any]) -> Steps:
        told: list[Any] = []
        for kind, *given in program:
            if kind == "continue":
                return ctx.continue_as_new(given[0], [*before, *self.heard])
            if kind == "raise":
                raise ValueError("as told")
            told.append((yield from getattr(self, f"_{kind}")(ctx, *given)))
        return [told, [*before, *self.heard]]

    def _echo(self, ctx: Any, value: Any) -> Steps:
        return (yield ctx.schedule_activity("echo", [value]))

    def _local(self, ctx: Any, value: Any) -> Steps:
        return (yield ctx.local_activity("echo", [value]))

    def _draw(self, ctx: Any, value: Any) -> Steps:
        return (yield ctx.side_effect(lambda: value))

    def _version(self, ctx: Any, name: str) -> Steps:
        return (yield ctx.get_version(name, -1, 2))

    def _memo(self, ctx: Any, value: Any) -> Steps:
        return (yield ctx.upsert_memo({"value": value}))

    def _wait(self, ctx: Any, words: int, key: str, seconds: int | None) -> Steps:
        return (yield ctx.wait_condition(lambda: len(self.heard) >= words, key=key, timeout=seconds))

    def _take(self, ctx: Any) -> Steps:
        """Waits for a word and looks at how many there were when it went on."""
        yield ctx.wait_condition(lambda: bool(self.heard), key="take")
        return len(self.heard)

    def _all(self, ctx: Any, members: list[Any]) -> Steps:
        try:
            return (yield [self._member(ctx, member) for member in members])
        except (ActivityFailed, ChildWorkflowFailed) as failure:
            return str(failure)

    def _first(self, ctx: Any, members: list[Any], then: str) -> Steps:
        won = yield ctx.select([self._member(ctx, member) for member in members])
        told: list[Any] = [won.key, str(won.failure or won.value)]
        for other in won.remaining().values():
            if then == "cancel":
                yield other.cancel()
            if then != "leave":
                try:
                    told.append((yield other))
                except (ActivityFailed, ChildWorkflowFailed, DurableOperationCancelled) as failure:
                    told.append(type(failure).__name__)
        return told

    def _member(self, ctx: Any, member: Any) -> Any:
        match member:
            case ["echo", value]:
                return ctx.schedule_activity("echo", [value])
            case ["fail", message]:
                return ctx.schedule_activity("fail", [message])
            case ["sleep", seconds]:
                return ctx.sleep(seconds)
            case ["child", program]:
                return ctx.start_child_workflow("program", [program, []], parent_close_policy="terminate")
            case ["group", *members]:
                return [self._member(ctx, each) for each in members]
        raise AssertionError(member)


def program(dice: random.Random, depth: int = 0) -> Program:
    """A few steps. What waits for words needs no more than `WORDS_MAX` of them."""
    steps = [_step(dice, depth) for _ in range(dice.randint(1, 6))]
    match dice.randint(0, 9):
        case 0:
            steps.append(["raise"])
        case 1 | 2 | 3 if depth < 2:
            steps.append(["continue", program(dice, depth + 1)])
    return steps


def _step(dice: random.Random, depth: int) -> list[Any]:
    words = dice.randint(1, WORDS_MAX)
    choices: list[list[Any]] = [
        ["echo", dice.randint(0, 99)],
        ["local", dice.randint(0, 99)],
        ["draw", dice.randint(0, 99)],
        ["version", dice.choice(["one", "two"])],
        ["memo", dice.randint(0, 99)],
        ["wait", words, f"words-{words}", None],
        ["wait", words, "words", None],
        ["wait", words, f"soon-{words}", dice.choice([0, 1, HOUR])],
        ["take"],
        ["all", [_member(dice, depth) for _ in range(dice.randint(0, 3))]],
        ["first", _race(dice, depth), dice.choice(["leave", "await", "cancel"])],
    ]
    return dice.choice(choices)


def _race(dice: random.Random, depth: int) -> list[Any]:
    """At least one member ends by itself."""
    others = [_member(dice, depth) for _ in range(dice.randint(0, 2))]
    members = [*others, ["echo", dice.randint(0, 99)]]
    dice.shuffle(members)
    return members


def _member(dice: random.Random, depth: int) -> list[Any]:
    choices: list[list[Any]] = [
        ["echo", dice.randint(0, 99)],
        ["echo", dice.randint(0, 99)],
        ["fail", "no"],
        ["sleep", dice.choice([0, 0, 1])],
    ]
    if depth < 2:
        quiet = [step for step in program(dice, depth + 1) if step[0] not in ("wait", "take", "continue")]
        choices += [["child", quiet], ["group", _member(dice, depth + 1), _member(dice, depth + 1)]]
    return dice.choice(choices)


WORKFLOWS = (Interpreter,)
