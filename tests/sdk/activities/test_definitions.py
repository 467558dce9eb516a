"""What can be an activity, and the errors for what cannot."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from penstock.sdk import activity
from penstock.sdk.activities.definition import ActivityDefinition


@activity.defn
async def charge(order: str, cents: int = 0) -> bool:
    return True


@activity.defn(name="send-mail")
def mail(to: str) -> None: ...


@activity.defn(runs_in="process")
def crunch(numbers: list[int]) -> int:
    return sum(numbers)


@activity.defn(dynamic=True)
async def anything(args: Sequence[activity.RawValue]) -> Any: ...


class Cards:
    def __init__(self, bank: str) -> None:
        self.bank = bank

    @activity.defn
    async def refund(self, order: str) -> str:
        return f"{self.bank}: {order}"

    @activity.defn
    @staticmethod
    def check(number: str) -> bool:
        return True

    @classmethod
    @activity.defn
    def count(cls, of: str) -> int:
        return 1


class Caller:
    @activity.defn(name="call")
    async def __call__(self, number: int) -> int:
        return number


def of(fn: object) -> ActivityDefinition:
    return ActivityDefinition.must_be(fn)


def test_a_function_stays_what_it_is_and_carries_its_definition():
    assert mail("a@b") is None
    found = of(charge)
    assert (found.name, found.kind, found.dynamic) == ("charge", "async", False)
    assert (found.parameters, found.required) == (("order", "cents"), 1)
    assert (found.arg_types, found.ret_type) == ((str, int), bool)


def test_where_an_activity_runs_follows_from_how_it_is_written():
    assert [of(each).kind for each in (charge, mail, crunch)] == ["async", "thread", "process"]


def test_a_name_may_be_given():
    assert of(mail).name == "send-mail"


def test_a_method_of_an_object_is_an_activity_without_self():
    found = ActivityDefinition.to_run(Cards("bank").refund)
    assert (found.name, found.parameters, found.arg_types) == ("refund", ("order",), (str,))


def test_a_method_can_be_called_by_its_class_but_not_run():
    found = of(Cards.refund)
    assert (found.name, found.parameters, found.unbound) == ("refund", ("order",), True)
    with pytest.raises(TypeError, match=r"activities=\[Cards\(…\)\.refund\]"):
        ActivityDefinition.to_run(Cards.refund)


def test_static_and_class_methods_are_activities():
    assert of(Cards.check).parameters == ("number",)
    assert of(Cards.count).parameters == ("of",)


def test_a_callable_object_is_an_activity():
    found = ActivityDefinition.to_run(Caller())
    assert (found.name, found.kind, found.parameters) == ("call", "async", ("number",))


def test_a_partial_is_an_activity_if_it_has_a_name():
    first = activity.defn(name="first")(functools.partial(lambda bank, order: order, "bank"))
    assert (of(first).name, of(first).parameters) == ("first", ("order",))


def test_a_definition_says_which_counts_of_arguments_do_not_fit():
    found = of(charge)
    assert found.arity_error(1) is None
    assert found.arity_error(2) is None
    assert found.arity_error(3) == 'activity "charge" takes 1 to 2 arguments (order, cents), not 3'
    assert of(mail).arity_error(0) == 'activity "send-mail" takes 1 argument (to), not 0'


def test_a_dynamic_activity_has_no_name_and_takes_any_count():
    assert of(anything).name is None
    assert of(anything).arity_error(17) is None


def undecorated() -> None: ...


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (undecorated, "undecorated is not an activity: decorate it with @activity.defn"),
        (Cards, r"Cards is a class. Give methods of an object of it"),
        ("charge", "'charge' is a name. Give the function"),
    ],
)
def test_what_is_not_an_activity_is_told_how_to_become_one(given, told):
    assert ActivityDefinition.of(given) is None
    with pytest.raises(TypeError, match=told):
        ActivityDefinition.must_be(given)


def several(*orders: str) -> None: ...


def options(**others: str) -> None: ...


def produces():
    yield 1


async def streams():
    yield 1


async def waits() -> None: ...


async def takes_text(args: str) -> None: ...


async def takes_two(a: Sequence[activity.RawValue], b: int) -> None: ...


@pytest.mark.parametrize(
    ("fn", "told", "how"),
    [
        (lambda order: order, {}, "A lambda has no name"),
        (functools.partial(undecorated), {}, r"has no name of its own: use @activity.defn\(name=…\)"),
        (Caller.__call__, {}, "has no name of its own"),
        (undecorated, {"name": ""}, "1 to 255 visible characters"),
        (undecorated, {"name": 7}, "is text, not int"),
        (several, {}, r'activity "several" takes \*orders'),
        (options, {}, r'activity "options" takes \*\*others. Name each parameter, or take one dict'),
        (produces, {}, 'activity "produces" is a generator'),
        (streams, {}, 'activity "streams" is a generator'),
        (waits, {"runs_in": "process"}, 'activity "waits" is async and runs in the event loop'),
        (undecorated, {"runs_in": "fiber"}, '"thread" or "process", not \'fiber\''),
        (takes_text, {"dynamic": True}, r"annotate args as Sequence\[activity.RawValue\]"),
        (takes_two, {"dynamic": True}, "takes one parameter"),
        (anything, {"dynamic": True, "name": "x"}, "has none: leave name= or dynamic= out"),
        (undecorated, {"auto_heartbeat": 3}, "True, False or a timedelta"),
        (undecorated, {"auto_heartbeat": timedelta(0)}, "longer than nothing"),
        (Cards, {}, "Cards is a class. Decorate its methods"),
    ],
)
def test_what_cannot_be_an_activity_is_refused_when_it_is_decorated(fn, told, how):
    with pytest.raises((TypeError, ValueError), match=how):
        activity.defn(**told)(fn)


def test_an_annotation_that_cannot_be_found_is_named():
    def looks(at: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"'Nowhere'.*Import it outside of `if TYPE_CHECKING:`"):
        ActivityDefinition.of(activity.defn(looks))


def test_a_wrapper_that_copied_a_function_s_marks_is_run_itself():
    ActivityDefinition.must_be(charge)

    @functools.wraps(charge)
    async def careful(order: str, cents: int = 0) -> bool:
        return await charge(order, cents)

    assert ActivityDefinition.must_be(careful).fn is careful
    assert ActivityDefinition.must_be(charge).fn is charge


def test_a_function_that_is_decorated_again_has_its_new_name():
    def look() -> None: ...

    assert ActivityDefinition.must_be(activity.defn(look)).name == "look"
    assert ActivityDefinition.must_be(activity.defn(name="glance")(look)).name == "glance"


@pytest.mark.parametrize(
    ("travelled", "called"),
    [
        ([1, 2, "m"], (1, 2, "m", 0)),
        ([1, 2, "m", 9], (1, 2, "m", 9)),
    ],
)
def test_what_can_only_be_given_by_name_travels_last_and_in_order(
    travelled: list[Any], called: tuple[Any, ...]
) -> None:
    @activity.defn(routing_key=activity.arg("model"))
    def ask(first: int, second: int = 5, *, model: str, tries: int = 0) -> Any:
        return first, second, model, tries

    found = ActivityDefinition.must_be(ask)
    assert (found.parameters, found.required) == (("first", "second", "model", "tries"), 3)
    assert found.bound(travelled)() == called
    assert found.routing_key(travelled) == "m"
    told = 'activity "ask" takes 3 to 4 arguments (first, second, model, tries), not 1'
    assert found.arity_error(1) == told
