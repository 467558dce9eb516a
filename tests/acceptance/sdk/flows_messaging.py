"""Workflows with signals, queries, updates, conditions and message streams."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from durable_workflow import workflow
from durable_workflow.errors import InvalidArgument

Steps = Generator[Any, Any, Any]


@workflow.defn(name="collector")
class Collector:
    """Waits until it has enough."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    @workflow.signal("add")
    def add(self, item: Any) -> None:
        self.items.append(item)

    @workflow.query("items")
    def shown(self) -> list[Any]:
        return list(self.items)

    @workflow.query("item")
    def one(self, index: int) -> Any:
        return self.items[index]

    def run(self, ctx: Any, enough: int) -> Steps:
        yield ctx.wait_condition(lambda: len(self.items) >= enough, key="enough")
        return self.items


@workflow.defn(name="pump")
class Pump:
    """An activity for each signal, while others come in."""

    def __init__(self) -> None:
        self.inbox: list[Any] = []

    @workflow.signal("add")
    def add(self, item: Any) -> None:
        self.inbox.append(item)

    def run(self, ctx: Any, total: int) -> Steps:
        done: list[Any] = []
        while len(done) < total:
            yield ctx.wait_condition(lambda: bool(self.inbox), key="inbox")
            item = self.inbox.pop(0)
            done.append((yield ctx.schedule_activity("echo", [item])))
        return done


@workflow.defn(name="turns")
class Turns:
    """The same wait, again and again, with nothing between."""

    def __init__(self) -> None:
        self.inbox: list[Any] = []

    @workflow.signal("add")
    def add(self, item: Any) -> None:
        self.inbox.append(item)

    def run(self, ctx: Any, turns: int) -> Steps:
        seen: list[Any] = []
        for _ in range(turns):
            yield ctx.wait_condition(lambda: bool(self.inbox), key="turn")
            seen.append(self.inbox.pop(0))
        return seen


@workflow.defn(name="busy")
class Busy:
    """Hears signals while it works. What comes in the middle of a group is heard at the step after it."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @workflow.signal("add")
    def add(self, item: Any) -> None:
        self.heard.append(item)

    @workflow.update("tell")
    def tell(self, item: Any) -> int:
        self.heard.append(item)
        return len(self.heard)

    @workflow.query("heard")
    def shown(self) -> list[Any]:
        return list(self.heard)

    def run(self, ctx: Any, one: str, two: str, three: str) -> Steps:
        yield ctx.schedule_activity("gated", [one, 1])
        alone = list(self.heard)
        yield [ctx.schedule_activity("gated", [two, 2]), ctx.schedule_activity("gated", [three, 3])]
        yield ctx.schedule_activity("echo", ["last"])
        return [alone, list(self.heard)]


@workflow.defn(name="distracted")
class Distracted:
    """Is talked to while it waits for the first of two."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    @workflow.signal("add")
    def add(self, item: Any) -> None:
        self.heard.append(item)

    @workflow.update("tell")
    def tell(self, item: Any) -> int:
        self.heard.append(item)
        return len(self.heard)

    def run(self, ctx: Any, gate: str) -> Steps:
        won = yield ctx.select({"work": ctx.schedule_activity("gated", [gate, 1]), "clock": ctx.sleep(3600)})
        then = list(self.heard)
        yield ctx.wait_condition(lambda: "end" in self.heard, key="end")
        return [won.key, then, self.heard]


@workflow.defn(name="deadline")
class Deadline:
    """Waits for a while, works, and waits again."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.signal("say")
    def say(self, word: str) -> None:
        self.words.append(word)

    def run(self, ctx: Any, seconds: int) -> Steps:
        in_time = yield ctx.wait_condition(lambda: "now" in self.words, key="now", timeout=seconds)
        worked = yield ctx.schedule_activity("echo", [len(self.words)])
        later = yield ctx.wait_condition(lambda: "end" in self.words, key="end", timeout=3600)
        return [in_time, worked, later, self.words]


@workflow.defn(name="stations")
class Stations:
    """Waits for one word after the other, each under its own key; the first not for ever."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.signal("say")
    def say(self, word: str) -> None:
        self.words.append(word)

    @workflow.update("write")
    def write(self, word: str) -> int:
        self.words.append(word)
        return len(self.words)

    def run(self, ctx: Any, stations: list[str], seconds: int) -> Steps:
        passed = []
        for number, word in enumerate(stations):
            timeout = None if number else seconds
            passed.append(
                (yield ctx.wait_condition(lambda word=word: word in self.words, key=word, timeout=timeout))
            )
        return [passed, self.words]


@workflow.defn(name="after_the_race")
class AfterTheRace:
    """Waits for a word between a selection and the one that lost it."""

    def __init__(self) -> None:
        self.words: list[str] = []

    @workflow.signal("say")
    def say(self, word: str) -> None:
        self.words.append(word)

    def run(self, ctx: Any, gate: str) -> Steps:
        won = yield ctx.select(
            {"clock": ctx.sleep(0), "work": ctx.schedule_activity("gated", [gate, "late"])}
        )
        yield ctx.wait_condition(lambda: "one" in self.words, key="one")
        late = yield won.handles["work"]
        yield ctx.wait_condition(lambda: "two" in self.words, key="two")
        last = yield [ctx.schedule_activity("echo", [1]), ctx.sleep(0)]
        return [won.key, late, last, self.words]


@workflow.defn(name="no_time")
class NoTime:
    """Timeouts of nothing, of what is so already and of what never is."""

    def run(self, ctx: Any) -> Steps:
        already = yield ctx.wait_condition(lambda: True, key="already", timeout=0)
        never = yield ctx.wait_condition(lambda: False, key="never", timeout=0)
        twice = yield ctx.wait_condition(lambda: False, key="never", timeout=0)
        return [already, never, twice]


@workflow.defn(name="ledger")
class Ledger:
    """Updates without validators."""

    def __init__(self) -> None:
        self.balance = 0
        self.notes: list[str] = []
        self.closed = False

    @workflow.signal("note")
    def note(self, text: str) -> None:
        self.notes.append(text)

    @workflow.query("balance")
    def shown(self) -> int:
        return self.balance

    @workflow.update("add")
    def add(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @workflow.update("spoil")
    def spoil(self, why: str) -> None:
        self.balance = -1_000_000
        raise ValueError(why)

    @workflow.update("close")
    def close(self) -> str:
        self.closed = True
        return "closed"

    def run(self, ctx: Any, gate: str = "") -> Steps:
        if gate:
            yield ctx.schedule_activity("gated", [gate, None])
        yield ctx.wait_condition(lambda: self.closed, key="closed")
        shown = yield ctx.schedule_activity("echo", [self.balance])
        return [shown, sorted(self.notes)]


@workflow.defn(name="guarded")
class Guarded:
    """Updates with validators: one that looks at the arguments and one that looks at the state."""

    def __init__(self) -> None:
        self.balance = 0
        self.closed = False

    @workflow.update("add")
    def add(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @workflow.update_validator("add")
    def may_add(self, amount: int) -> None:
        if amount <= 0:
            raise InvalidArgument("amounts are positive", {"amount": ["must be positive"]})

    @workflow.update("take")
    def take(self, amount: int) -> int:
        if amount == 13:
            raise ValueError("unlucky")
        self.balance -= amount
        return self.balance

    @workflow.update_validator("take")
    def may_take(self, amount: int) -> bool:
        return amount <= self.balance

    @workflow.update("close")
    def close(self) -> str:
        self.closed = True
        return "closed"

    def run(self, ctx: Any) -> Steps:
        yield ctx.wait_condition(lambda: self.closed, key="closed")
        return self.balance


@workflow.defn(name="reader")
class Reader:
    """Reads a stream message by message, two in each run."""

    def run(self, ctx: Any, stream: str, left: int, read: list[Any]) -> Steps:
        inbox = ctx.message_stream(stream)
        for _ in range(min(left, 2)):
            message = yield from inbox.receive_one()
            read = [*read, [message.position, message.message_id, *message.arguments]]
        if left > 2:
            return ctx.continue_as_new(stream, left - 2, read)
        return read


@workflow.defn(name="batch_reader")
class BatchReader:
    """Reads what there is, and works on it before it reads on; and listens to another stream at the end."""

    def run(self, ctx: Any, total: int, gate: str) -> Steps:
        inbox = ctx.message_stream("work")
        done: list[Any] = []
        while len(done) < total:
            batch = yield from inbox.receive(10)
            name, arguments = ("gated", [gate, "held"]) if not done else ("echo", ["quick"])
            yield ctx.schedule_activity(name, arguments)
            done += [message.arguments[0] for message in batch]
        last = yield from ctx.message_stream("ends").receive_one()
        return [done, last.arguments]


WORKFLOWS = (
    Collector,
    Pump,
    Turns,
    Busy,
    Distracted,
    Deadline,
    Stations,
    AfterTheRace,
    NoTime,
    Ledger,
    Guarded,
    Reader,
    BatchReader,
)
