"""Strict JSON: what is rejected, and that it agrees with the standard library otherwise."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, Reason
from penstock.wire.strict_json import dumps, loads

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=6), inner, max_size=6),
    max_leaves=30,
)


def refused(raw: bytes) -> str:
    with pytest.raises(InvalidInput) as refusal:
        loads(raw)
    assert refusal.value.reason is Reason.MALFORMED_JSON
    error: str = refusal.value.details["json_error"]
    return error


@given(values, st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_ordinary_json_reads_as_the_standard_library_reads_it(
    value: object, ascii_only: bool, indent: int | str | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert repr(loads(text.encode())) == repr(json.loads(text))


@given(values)
def test_what_is_rendered_reads_back(value: object) -> None:
    assert loads(dumps(value)) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"NaN",
        b"[Infinity]",
        b'{"weight": -Infinity}',
        b"1e999",
        b'{"weight": -1e999}',
        b"01",
        b"[1,]",
        b"{'a': 1}",
        b'{"a": 1} x',
        b"{}{}",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"a": "tab\there"}',
        b"// comment\n{}",
        b'"open',
        b'"open\\',
        b"{",
        b"]",
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    assert refused(raw)


@pytest.mark.parametrize(
    "raw",
    [
        rb'"\ud800"',
        rb'"\udc00"',
        rb'"\ud800 and more text"',
        rb'"\ud800\u0041 and more"',
        rb'"\ud800\ud800 and more"',
        rb'{"\udfff": 1}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\x80"',
        b'{"\xff": 1}',
    ],
)
def test_text_that_no_utf8_can_hold_is_refused(raw: bytes) -> None:
    assert refused(raw)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**100, 10**4299])
@pytest.mark.parametrize("around", ["%s", "[%s]", '{"a": {"b": [%s]}}'])
def test_an_integer_that_no_database_holds_is_refused(number: int, around: str) -> None:
    assert "64-bit" in refused((around % number).encode())


def test_a_number_of_thousands_of_digits_is_refused_in_any_form() -> None:
    assert refused(b"1" * 5000)
    assert refused(b"[" + b"9" * 100_000 + b"]")
    assert loads(b"1." + b"0" * 5000) == 1.0


def test_the_widest_integers_pass() -> None:
    assert loads(b"[9223372036854775807, -9223372036854775808]") == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": 1, "a": 1}',
        rb'{"a": 1, "\u0061": 2}',
        b'[{"x": {"a": 1, "b": 2, "a": 3}}]',
        b'{"time": "12:30:00", "a": 1, "a": 2}',
        b'{"note": "a: \\"b\\": c", "a": 1, "a": 2}',
    ],
)
def test_a_key_said_twice_is_refused_by_name(raw: bytes) -> None:
    assert 'the key "a" is repeated' in refused(raw)


@pytest.mark.parametrize(
    "text",
    [
        '{"at": "2026-01-01T00:00:00Z", "url": "http://127.0.0.1:8080/"}',
        '{"a:b": ":", "c": "\\":\\\\"}',
        '[{"a": 1}, {"a": 1}]',
        '{"a": {"a": {"a": ":"}}}',
    ],
)
def test_colons_in_text_and_keys_of_different_objects_are_no_duplicates(text: str) -> None:
    assert loads(text.encode()) == json.loads(text)


@given(st.dictionaries(st.text(max_size=4), values, min_size=1, max_size=4), st.data())
def test_any_object_with_one_member_repeated_is_refused(
    value: dict[str, object], data: st.DataObject
) -> None:
    members = [f"{json.dumps(key)}:{json.dumps(item)}" for key, item in value.items()]
    again = data.draw(st.sampled_from(sorted(value)))
    members.insert(data.draw(st.integers(0, len(members))), f"{json.dumps(again)}:null")
    assert "repeated" in refused(("{" + ",".join(members) + "}").encode())


class TestBombs:
    def test_depth_is_bounded_exactly(self) -> None:
        assert loads(b"[" * 100 + b"]" * 100)
        assert "deeper than 100" in refused(b"[" * 101 + b"]" * 101)
        assert "deeper than 100" in refused(b'{"a":' * 101 + b"1" + b"}" * 101)
        assert loads(b"[" + b"[]," * 500 + b"[]]")

    @pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000, b"[{" * 50_000 + b"]" * 50_000])
    def test_a_tower_of_brackets_is_refused(self, raw: bytes) -> None:
        assert refused(raw)

    def test_a_depth_of_ones_own_counts(self) -> None:
        with pytest.raises(InvalidInput):
            loads(b"[[[]]]", depth_max=2)
        assert loads(b"[[]]", depth_max=2) == [[]]

    def test_brackets_and_colons_inside_text_do_not_count(self) -> None:
        text = "[{:" * 200_000 + '\\"'
        assert loads(json.dumps({"note": text}).encode()) == {"note": text}

    def test_a_million_keys_are_refused(self) -> None:
        raw = b"{" + b",".join(b'"%d":0' % n for n in range(200_000)) + b"}"
        assert "object keys" in refused(raw)

    def test_a_flood_of_small_containers_is_refused(self) -> None:
        assert "objects and lists" in refused(b"[" + b"[]," * 200_000 + b"[]]")
        assert "objects and lists" in refused(b"[" + b"{}," * 200_000 + b"[]]")

    def test_unclosed_text_full_of_escaped_quotes_costs_one_pass(self) -> None:
        assert refused(b"[" * 200 + b'"' + b'\\"' * 500_000)
        assert refused(b"[" * 200 + b'"' * 500_001)


def exceeded(raw: bytes, depth_max: int, keys_max: int, containers_max: int) -> str | None:
    """Which bound a text exceeds, found out byte by byte."""
    keys = containers = depth = deepest = 0
    inside = escaped = False
    for byte in raw.decode("latin-1"):
        if inside:
            inside, escaped = escaped or byte != '"', byte == "\\" and not escaped
        elif byte == '"':
            inside = True
        elif byte == ":":
            keys += 1
        elif byte in "{[":
            containers, depth = containers + 1, depth + 1
            deepest = max(deepest, depth)
        elif byte in "}]":
            depth -= 1
    if keys > keys_max:
        return f"more than {keys_max} object keys"
    if containers > containers_max:
        return f"more than {containers_max} objects and lists"
    return f"nested deeper than {depth_max} levels" if deepest > depth_max else None


def outcome(raw: bytes, **bounds: int) -> str:
    try:
        return repr(loads(raw, **bounds))
    except InvalidInput as refusal:
        return str(refusal.details["json_error"])


members = st.lists(st.tuples(st.sampled_from("ab:[{"), st.deferred(lambda: texts)), max_size=3)
texts: st.SearchStrategy[str] = st.one_of(
    st.sampled_from(["1", "null", str(2**63), '"[{:"', '"\\"]"', '"\\\\"', '"open', "[", "}", "x", ""]),
    st.lists(st.deferred(lambda: texts), max_size=3).map(lambda inner: f"[{','.join(inner)}]"),
    members.map(lambda pairs: "{" + ",".join(f'"{key}":{value}' for key, value in pairs) + "}"),
)
"""Texts that are JSON, or nearly; with keys said twice, wide integers, and what looks like structure in strings."""


@given(texts, st.integers(0, 4), st.integers(0, 6), st.integers(0, 8))
def test_a_text_beyond_a_bound_is_refused_for_that_and_else_reads_as_without_bounds(
    text: str, depth_max: int, keys_max: int, containers_max: int
) -> None:
    raw = text.encode()
    bounds = {"depth_max": depth_max, "keys_max": keys_max, "containers_max": containers_max}
    assert outcome(raw, **bounds) == (exceeded(raw, **bounds) or outcome(raw))


@given(st.binary(max_size=80) | st.text(alphabet='{}[]",:\\u0d8e19.-+ntf ', max_size=60).map(str.encode))
def test_no_bytes_make_the_parser_fail_in_another_way(raw: bytes) -> None:
    try:
        value = loads(raw)
    except InvalidInput:
        return
    assert value == json.loads(raw)


class Row(msgspec.Struct):
    share: float
    next_token: str | None = None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_never_rendered_as_null(number: float) -> None:
    for value in (number, [number], {"a": [{"b": (1, number)}]}, Row(number), {"rows": [Row(number, "x")]}):
        with pytest.raises(ValueError, match="finite"):
            dumps(value)


def test_null_and_finite_numbers_are_rendered() -> None:
    assert dumps({"a": None, "b": [1.5, Row(0.5)]}) == b'{"a":null,"b":[1.5,{"share":0.5,"next_token":null}]}'


def test_text_with_half_a_surrogate_pair_is_never_rendered() -> None:
    with pytest.raises(ValueError):
        dumps({"a": "\ud800"})
