"""Workflows with groups, sagas, selections, local activities and markers."""

from __future__ import annotations

import uuid
from collections.abc import Generator
from typing import Any

from durable_workflow import ActivityRetryPolicy, ChildWorkflowRetryPolicy, workflow
from durable_workflow.errors import (
    ActivityFailed,
    ChildWorkflowFailed,
    DurableOperationCancelled,
)

Steps = Generator[Any, Any, Any]
HOUR = 3600


@workflow.defn(name="nested_groups")
class NestedGroups:
    """Groups in groups: what comes back has the shape of what was yielded."""

    def run(self, ctx: Any, one: str, two: str, three: str) -> Steps:
        found = yield [
            ctx.schedule_activity("gated", [one, 1]),
            [ctx.schedule_activity("gated", [two, 2]), ctx.sleep(0)],
            [[ctx.schedule_activity("gated", [three, 3])], ctx.schedule_activity("echo", [4])],
        ]
        last = yield ctx.schedule_activity("echo", ["after"])
        return [found, last]


@workflow.defn(name="broken_group")
class BrokenGroup:
    """Two members fail; the first of them in the order of the code is what the code is told."""

    def run(self, ctx: Any, one: str, two: str, three: str) -> Steps:
        caught = None
        try:
            yield [
                ctx.schedule_activity("gated", [one, 1]),
                ctx.schedule_activity("gated_failure", [two, "second"]),
                [ctx.schedule_activity("gated_failure", [three, "third"]), ctx.sleep(0)],
            ]
        except ActivityFailed as failure:
            caught = str(failure)
        last = yield ctx.schedule_activity("echo", ["after"])
        return [caught, last]


@workflow.defn(name="doomed_group")
class DoomedGroup:
    """Nobody catches the failure of a member."""

    def run(self, ctx: Any) -> Steps:
        yield [ctx.schedule_activity("echo", [1]), ctx.schedule_activity("fail", ["no"]), ctx.sleep(0)]


@workflow.defn(name="wide_group")
class WideGroup:
    """As many members as asked for, twice."""

    def run(self, ctx: Any, size: int) -> Steps:
        first = yield [ctx.schedule_activity("echo", [number]) for number in range(size)]
        second = yield [ctx.schedule_activity("echo", [number + 1]) for number in first]
        return sum(second)


@workflow.defn(name="trip")
class Trip:
    """A saga: what was booked is given back in reverse order."""

    def run(self, ctx: Any, tag: str, broken: str, stuck: str) -> Steps:
        saga = ctx.saga()

        def booking(saga: Any) -> Steps:
            for part in ("hotel", "car", "flight"):
                if part == broken:
                    yield ctx.schedule_activity("fail", [f"no {part}"])
                yield ctx.schedule_activity("note", [tag, f"book {part}"])
                if part == stuck:
                    saga.add_compensation("fail", [f"{part} is stuck"])
                else:
                    saga.add_compensation("note", [tag, f"return {part}"])
            return "booked"

        return (yield from saga.run(booking))


@workflow.defn(name="careful_trip")
class CarefulTrip:
    """A saga by hand: a group that fails is undone by a group."""

    def run(self, ctx: Any, tag: str) -> Steps:
        booked = yield [ctx.schedule_activity("note", [tag, f"book {part}"]) for part in ("hotel", "car")]
        try:
            yield [
                ctx.schedule_activity("note", [tag, "book flight"]),
                ctx.schedule_activity("fail", ["full"]),
            ]
        except ActivityFailed as failure:
            undone = yield [ctx.schedule_activity("echo", [f"undo {part}"]) for part in booked]
            yield ctx.sleep(0)
            return [str(failure), undone]
        return "booked"


@workflow.defn(name="fixed")
class Fixed:
    """What would differ at every replay is recorded or derived, so that it does not."""

    def run(self, ctx: Any) -> Steps:
        drawn = yield ctx.side_effect(lambda: str(uuid.uuid4()))
        again = yield ctx.side_effect(lambda: str(uuid.uuid4()))
        echoed = yield ctx.schedule_activity("echo", [drawn])
        later = yield ctx.side_effect(lambda: {"drawn": str(uuid.uuid4()), "list": [1, None, 2.5]})
        return [drawn, again, echoed, later, str(ctx.uuid4()), str(ctx.uuid7()), ctx.now().isoformat()]


@workflow.defn(name="versioned")
class Versioned:
    """Version markers at the start, repeated, after a step and right before the end."""

    def run(self, ctx: Any) -> Steps:
        first = yield ctx.get_version("layout", 1, 3)
        same = yield ctx.get_version("layout", 1, 3)
        yield ctx.schedule_activity("echo", [first])
        patched = yield ctx.patched("colours")
        yield ctx.sleep(0)
        yield ctx.deprecate_patch("colours")
        last = yield ctx.get_version("ending", 0, 7)
        return [first, same, patched, last]


@workflow.defn(name="labelled")
class Labelled:
    """Changes how it is found while it runs."""

    def __init__(self) -> None:
        self.told = False

    @workflow.signal("go_on")
    def go_on(self) -> None:
        self.told = True

    def run(self, ctx: Any) -> Steps:
        yield ctx.upsert_memo({"stage": "one", "nested": {"b": [1, {"x": None}], "a": True}})
        yield ctx.upsert_search_attributes({"Stage": "one", "Count": 1})
        yield ctx.schedule_activity("echo", ["between"])
        yield ctx.upsert_search_attributes({"Stage": "two", "Count": None})
        yield ctx.upsert_memo({"stage": "two", "given": None})
        yield ctx.wait_condition(lambda: self.told, key="go_on")
        yield ctx.upsert_memo({"last": 3})
        return "labelled"


@workflow.defn(name="at_home")
class AtHome:
    """Local activities: done, retried, failed and forgiven; and a remote one after them."""

    def run(self, ctx: Any, tag: str) -> Steps:
        one = yield ctx.local_activity("echo", [1])
        third = yield ctx.local_activity(
            "third_time", [tag], retry_policy={"max_attempts": 3, "backoff_seconds": [0, 0]}
        )
        try:
            yield ctx.local_activity("fail", ["at home"])
        except ActivityFailed as failure:
            caught = str(failure)
        away = yield ctx.schedule_activity("echo", [one + third])
        last = yield ctx.local_activity("count", [tag])
        return [one, third, caught, away, last]


@workflow.defn(name="first_of")
class FirstOf:
    """An activity against the clock. What is left is awaited, cancelled, or left."""

    def run(self, ctx: Any, activity: list[Any], seconds: int, then: str) -> Steps:
        name, *arguments = activity
        won = yield ctx.select({"work": ctx.schedule_activity(name, arguments), "clock": ctx.sleep(seconds)})
        ((key, other),) = won.remaining().items()
        late = None
        if then == "step first":
            yield ctx.schedule_activity("echo", ["between"])
        if then.startswith("cancel"):
            yield other.cancel()
        if then != "leave":
            try:
                late = yield other.await_result()
            except DurableOperationCancelled as stopped:
                late = f"cancelled {stopped.member_key}"
            except ActivityFailed as failure:
                late = f"failed {failure}"
        last = yield ctx.schedule_activity("echo", ["after"])
        broken = None if won.succeeded else str(won.failure)
        return [won.key, won.value, broken, key, late, last]


@workflow.defn(name="first_group")
class FirstGroup:
    """A group against the clock."""

    def run(self, ctx: Any, one: list[Any], two: list[Any], then: str) -> Steps:
        group = [ctx.schedule_activity(name, arguments) for name, *arguments in (one, two)]
        won = yield ctx.select({"both": group, "clock": ctx.sleep(HOUR if then == "wait" else 1)})
        late = None
        if then == "cancel":
            both = won.handles["both"]
            yield both.cancel()
            try:
                late = yield both.await_result()
            except DurableOperationCancelled:
                late = "cancelled"
        last = yield [ctx.schedule_activity("echo", [1]), ctx.schedule_activity("echo", [2])]
        return [won.key, won.value, None if won.succeeded else str(won.failure), late, last]


@workflow.defn(name="first_child")
class FirstChild:
    """A child against the clock; a child that is too slow is cancelled."""

    def run(self, ctx: Any, child_type: str, arguments: list[Any], seconds: int, tries: int) -> Steps:
        policy = ChildWorkflowRetryPolicy(
            max_attempts=tries, initial_interval_seconds=0, maximum_interval_seconds=0
        )
        child = ctx.start_child_workflow(child_type, arguments, retry_policy=policy if tries > 1 else None)
        won = yield ctx.select([child, ctx.sleep(seconds)])
        late = None
        if won.key == 1:
            slow = won.handles[0]
            yield slow.cancel()
            try:
                yield slow.await_result()
            except DurableOperationCancelled:
                late = "cancelled"
            except ChildWorkflowFailed as failure:
                late = str(failure)
        return [won.key, won.value, None if won.succeeded else str(won.failure), late]


@workflow.defn(name="first_condition")
class FirstCondition:
    """A condition with a timeout against a longer clock."""

    def run(self, ctx: Any) -> Steps:
        won = yield ctx.select(
            {"never": ctx.wait_condition(lambda: False, key="never", timeout=1), "clock": ctx.sleep(HOUR)}
        )
        last = yield ctx.schedule_activity("echo", ["after"])
        return [won.key, won.value, last]


@workflow.defn(name="races")
class Races:
    """Selections, groups and plain steps after one another: every number must still fit."""

    def run(self, ctx: Any, gate: str) -> Steps:
        start = yield ctx.schedule_activity("echo", ["start"])
        first = yield ctx.select(
            [ctx.schedule_activity("echo", ["one"]), ctx.schedule_activity("gated", [gate, "late"])]
        )
        group = yield [ctx.schedule_activity("echo", [1]), [ctx.sleep(0), ctx.schedule_activity("echo", [2])]]
        yield ctx.get_version("races", 1, 1)
        second = yield ctx.select(
            {"both": [ctx.schedule_activity("echo", [3]), ctx.sleep(0)], "never": ctx.sleep(HOUR)}
        )
        late = yield first.handles[1]
        plain = yield ctx.schedule_activity("echo", ["plain"])
        yield second.handles["never"].cancel()
        last = yield [ctx.schedule_activity("echo", [4])]
        return [start, first.value, group, second.value, late, plain, last]


@workflow.defn(name="watched")
class Watched:
    """An activity under the clocks that it is given; the end of its time is told."""

    def run(self, ctx: Any, activity: list[Any], clocks: dict[str, int]) -> Steps:
        name, *arguments = activity
        try:
            value = yield ctx.schedule_activity(name, arguments, **clocks)
        except ActivityFailed as failure:
            last = yield ctx.schedule_activity("echo", ["after"])
            return [failure.failure_category, last]
        return value


@workflow.defn(name="persistent")
class Persistent:
    """Groups with a member that is retried, and a single activity that is retried."""

    def run(self, ctx: Any, tag: str) -> Steps:
        policy = ActivityRetryPolicy(max_attempts=4, initial_interval_seconds=0, maximum_interval_seconds=1)
        group = yield [
            ctx.schedule_activity("echo", [1]),
            ctx.schedule_activity("third_time", [f"{tag}-group"], retry_policy=policy),
            ctx.schedule_activity("echo", [2]),
        ]
        alone = yield ctx.schedule_activity("third_time", [f"{tag}-alone"], retry_policy=policy)
        return [group, alone]


WORKFLOWS = (
    NestedGroups,
    BrokenGroup,
    DoomedGroup,
    WideGroup,
    Trip,
    CarefulTrip,
    Fixed,
    Versioned,
    Labelled,
    AtHome,
    FirstOf,
    FirstGroup,
    FirstChild,
    FirstCondition,
    Races,
    Watched,
    Persistent,
)
