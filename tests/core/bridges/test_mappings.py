"""Mappings from bodies to commands: placeholders with types, literal braces, and refusals for what is not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.bridges.mappings import (
    EventRoute,
    MappingError,
    filled,
    parse_path,
    parse_template,
    parse_value,
)
from penstock.core.bridges.outcomes import command_key

EVENT = {"id": "evt", "n": 7, "flag": True, "data": {"lines": [{"sku": "a"}, {"sku": "b"}], "none": None}}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("order-{id}", "order-evt"),
        ("{n}", "7"),
        ("{data.lines.1.sku}/{id}", "b/evt"),
        ("{{{id}}}", "{evt}"),
        ("plain", "plain"),
    ],
)
def test_placeholders_become_text(template: str, text: str) -> None:
    assert parse_template(template).rendered(EVENT) == text


def test_a_lone_placeholder_keeps_the_type_of_its_value() -> None:
    shape = parse_value(["{n}", "{flag}", "{data.none}", {"all": "{}", "text": "n={n}", "kept": 1.5}])
    assert filled(shape, EVENT) == [7, True, None, {"all": EVENT, "text": "n=7", "kept": 1.5}]


@pytest.mark.parametrize("path", ["missing", "data.lines.2", "data.lines.01", "data.lines.x", "id.x", "n.0"])
def test_a_path_that_finds_nothing_is_an_error_that_names_it(path: str) -> None:
    with pytest.raises(MappingError) as caught:
        parse_template(f"x-{{{path}}}").rendered(EVENT)
    assert caught.value.path == path


@pytest.mark.parametrize("path", ["flag", "data", "data.lines", "data.none", ""])
def test_only_texts_and_whole_numbers_become_text(path: str) -> None:
    with pytest.raises(MappingError, match="not a text or a whole number"):
        parse_template(f"{{{path}}}").rendered(EVENT)


@pytest.mark.parametrize("text", ["{", "}", "a{b", "a}b", "{a{b}}", "{a..b}", "{.a}", "{a.}", "x" * 1001])
def test_a_template_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"brace|path|characters"):
        parse_template(text)


def test_conditions_compare_value_and_type() -> None:
    def route(*allowed: object) -> EventRoute:
        return EventRoute("start_workflow", {}, None, ((parse_path("flag"), allowed),))

    assert route(True).matches(EVENT)
    assert route("x", True).matches(EVENT)
    assert not route(1).matches(EVENT)
    assert not route(True).matches({})
    assert not route(True).matches([])


@given(event=json_values, path=st.lists(st.text("ab01", min_size=1, max_size=2), max_size=3))
def test_any_body_has_a_value_at_a_path_or_an_error(event: object, path: list[str]) -> None:
    text = ".".join(path)
    template, refused = parse_template(f"{{{text}}}"), None
    try:
        template.value(event)
    except MappingError as error:
        refused = error.path
    assert refused in (None, text)


@given(st.tuples(*[st.text(max_size=4)] * 3), st.tuples(*[st.text(max_size=4)] * 3))
def test_two_events_never_share_a_command_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (command_key(*one) == command_key(*other)) is (one == other)
