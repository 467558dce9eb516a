"""Workflows that start others: children under every policy, and continue-as-new chains."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from durable_workflow import ChildWorkflowRetryPolicy, workflow
from durable_workflow.errors import ChildWorkflowFailed

Steps = Generator[Any, Any, Any]


@workflow.defn(name="echo_child")
class EchoChild:
    def run(self, ctx: Any, value: Any) -> Steps:
        return (yield ctx.schedule_activity("echo", [value]))


@workflow.defn(name="failing_child")
class FailingChild:
    def run(self, ctx: Any, message: str) -> Steps:
        yield ctx.sleep(0)
        raise ValueError(message)


@workflow.defn(name="listening_child")
class ListeningChild:
    """Lives until it hears a word."""

    def __init__(self) -> None:
        self.word: str | None = None

    @workflow.signal("word")
    def hear(self, word: str) -> None:
        self.word = word

    def run(self, ctx: Any) -> Steps:
        yield ctx.wait_condition(lambda: self.word is not None, key="word")
        return self.word


@workflow.defn(name="flaky_child")
class FlakyChild:
    """Fails until it was tried often enough."""

    def run(self, ctx: Any, tag: str, enough: int) -> Steps:
        tried = yield ctx.schedule_activity("count", [tag])
        if tried < enough:
            raise ValueError(f"try {tried}")
        return tried


@workflow.defn(name="parent")
class Parent:
    """Waits for its child and tells how it ended."""

    def run(self, ctx: Any, child_type: str, arguments: list[Any], how: dict[str, Any]) -> Steps:
        how = dict(how)
        if "tries" in how:
            how["retry_policy"] = ChildWorkflowRetryPolicy(
                max_attempts=how.pop("tries"),
                initial_interval_seconds=0,
                maximum_interval_seconds=0,
                non_retryable_error_types=how.pop("unless", []),
            )
        try:
            value = yield ctx.start_child_workflow(child_type, arguments, **how)
        except ChildWorkflowFailed as failure:
            last = yield ctx.schedule_activity("echo", ["after"])
            return [type(failure).__name__, str(failure), failure.child_workflow_type, last]
        return value


@workflow.defn(name="hasty_parent")
class HastyParent:
    """Does not wait for its child: returns, fails or goes on as another run."""

    def run(self, ctx: Any, policy: str, end: str) -> Steps:
        child = ctx.start_child_workflow("listening_child", [], parent_close_policy=policy)
        yield ctx.select({"child": child, "go": ctx.sleep(0)})
        if end == "fail":
            raise ValueError("in a hurry")
        if end == "continue":
            return ctx.continue_as_new(policy, "last", workflow_type="last_run")
        return end


@workflow.defn(name="last_run")
class LastRun:
    def run(self, ctx: Any, *arguments: Any) -> Steps:
        return (yield ctx.schedule_activity("echo", [list(arguments)]))


@workflow.defn(name="large_family")
class LargeFamily:
    """Children, an activity and a timer in one group; then a group that fails."""

    def run(self, ctx: Any) -> Steps:
        happy = yield [
            ctx.start_child_workflow("echo_child", ["a"]),
            [ctx.start_child_workflow("parent", ["echo_child", ["b"], {}]), ctx.sleep(0)],
            ctx.schedule_activity("echo", ["c"]),
        ]
        try:
            yield [
                ctx.start_child_workflow("echo_child", ["d"]),
                ctx.start_child_workflow("failing_child", ["first"]),
                ctx.start_child_workflow("failing_child", ["second"]),
            ]
        except ChildWorkflowFailed as failure:
            return [happy, str(failure)]


@workflow.defn(name="chain")
class Chain:
    """One run after another."""

    def run(self, ctx: Any, left: int, seen: list[int]) -> Steps:
        seen = [*seen, (yield ctx.schedule_activity("echo", [left]))]
        if left:
            return ctx.continue_as_new(left - 1, seen)
        return seen


@workflow.defn(name="yielding_chain")
class YieldingChain:
    """Continues by yielding, at once after a recorded step, and as another type at the end."""

    def run(self, ctx: Any, left: int) -> Steps:
        drawn = yield ctx.side_effect(lambda: left)
        if drawn:
            yield ctx.continue_as_new(drawn - 1)
        yield ctx.continue_as_new("the", "end", workflow_type="last_run")


@workflow.defn(name="collecting_chain")
class CollectingChain:
    """Hands on what it collected after every few signals."""

    def __init__(self) -> None:
        self.inbox: list[Any] = []

    @workflow.signal("add")
    def add(self, item: Any) -> None:
        self.inbox.append(item)

    def run(self, ctx: Any, total: int, got: list[Any]) -> Steps:
        wanted = min(3, total - len(got))
        yield ctx.wait_condition(lambda: len(self.inbox) >= wanted, key="some")
        got = [*got, *self.inbox]
        if len(got) < total:
            return ctx.continue_as_new(total, got)
        return got


@workflow.defn(name="lingering_chain")
class LingeringChain:
    """Goes on as a new run at once, and its last run never ends by itself."""

    def run(self, ctx: Any, left: int) -> Steps:
        if left:
            return ctx.continue_as_new(left - 1)
        yield ctx.wait_condition(lambda: False, key="never")


WORKFLOWS = (
    EchoChild,
    FailingChild,
    ListeningChild,
    FlakyChild,
    Parent,
    HastyParent,
    LastRun,
    LargeFamily,
    Chain,
    YieldingChain,
    CollectingChain,
    LingeringChain,
)
