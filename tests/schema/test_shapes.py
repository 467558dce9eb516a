"""A tree is read by its shape: what fits is returned, and everything else is a problem with its path."""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum
from typing import Any

import pytest

from penstock.schema.json_schema import schema_of
from penstock.schema.kinds import Choice, Duration, Flag, Kind, Number, Text, TextList, Whole
from penstock.schema.problems import InvalidValue
from penstock.schema.shapes import Key, ListOf, ShapeReader, Table, TableOf

_SHAPE = Table(
    (
        Key("size", Whole(1, 5), "How large.", is_required=True),
        Key("pause", Duration(), can_be_unset=True),
        Key("parts", ListOf(Table((Key("name", Text()),), needs_one_of=("name",)))),
        Key("named", TableOf(Flag(), "thing", Text(convert=str.lower))),
    ),
    instead={"length": "is called `size` here; rename it"},
)


def read(tree: object) -> tuple[Any, list[str]]:
    reader = ShapeReader(("root",), lambda path: "file:1")
    return reader.table(_SHAPE, tree, ()), [str(problem) for problem in reader.problems]


def test_what_fits_is_returned_by_key() -> None:
    found, problems = read({"size": 2, "pause": "90s", "parts": [{"name": "a"}], "named": {"A": True}})
    assert problems == []
    assert found == {
        "size": 2,
        "pause": timedelta(seconds=90),
        "parts": ({"name": "a"},),
        "named": {"a": True},
    }


def test_unset_takes_a_value_back() -> None:
    assert read({"size": 1, "pause": "unset"})[0] == {"size": 1, "pause": None}


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({}, "root.size (file:1): 'size' is required"),
        ({"size": 9}, "root.size (file:1): must be a whole number from 1 to 5, not 9"),
        ({"size": 1, "sise": 1}, "root.sise (file:1): unknown key; did you mean 'size'?"),
        ({"size": 1, "x": 1}, "root.x (file:1): unknown key; there are size, pause, parts, named"),
        ({"size": 1, "length": 1}, "root.length (file:1): is called `size` here; rename it"),
        ({"size": 1, "named": 3}, "root.named (file:1): must be a table with an entry for each thing, not 3"),
        ({"size": 1, "parts": {}}, "root.parts (file:1): must be a list of tables, not a table"),
        ({"size": 1, "parts": [{}]}, "root.parts[0] (file:1): needs one of name"),
        (
            {"size": 1, "named": {"a": True, "A": True}},
            'root.named.A (file:1): is the same key as "a": keep one of them',
        ),
    ],
)
def test_what_does_not_fit_is_a_problem_with_its_path(tree: object, problem: str) -> None:
    assert read(tree)[1] == [problem]


def test_all_problems_are_found_at_once() -> None:
    assert len(read({"size": "x", "pause": True, "named": {"": 1}, "odd": 1})[1]) == 4


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Whole(0), 2**31, "must be at most 2147483647, not 2147483648"),
        (
            Whole(1, or_unlimited=True),
            "many",
            'must be a whole number, 1 or more, or "unlimited", not "many"',
        ),
        (
            Number(above=0, most=2),
            10**400,
            "must be a finite number above 0, at most 2, not a number beyond 64 bits",
        ),
        (Duration(), "-1s", 'must be above 0, not "-1s"'),
        (Flag(), 1, "must be true or false, not 1"),
        (Choice(("a", "b")), "c", 'must be a or b, not "c"'),
        (Choice(("a",), ("z",)), "z", '"z" is reserved, not implemented; use a'),
        (Text(is_printable=True), "\x1b", 'must be a text that is not empty, not "\\u001b"'),
        (
            Text("one word", is_secret=True, length_max=3),
            "hunter2",
            "must be one word (at most 3 characters)",
        ),
        (TextList("a list of names", Text()), ["a", 1], "must be a text that is not empty, not 1"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_what_would_be_right(
    kind: Kind, value: object, message: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        kind.read(value)
    assert refused.value.message == message


def test_a_shape_is_a_json_schema() -> None:
    schema = schema_of(_SHAPE)
    assert schema["required"] == ["size"]
    assert schema["properties"]["size"] == {
        "description": "How large.",
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
    }
    assert schema["properties"]["pause"]["anyOf"][1] == {"const": "unset"}


def test_a_number_of_an_enumeration_is_a_number():
    class Size(IntEnum):
        SMALL = 2

    found, problems = read({"size": Size.SMALL})
    assert problems == []
    assert found["size"] == 2
    assert type(found["size"]) is int


def test_a_key_that_is_wrong_is_refused_also_where_its_value_is_unset():
    reader = ShapeReader(("root",), lambda path: "file:1")
    named = {"A": reader.unset, "a": True}
    reader.table(_SHAPE, {"size": 1, "named": named}, ())
    assert [problem.path for problem in reader.problems] == ["root.named.a"]
