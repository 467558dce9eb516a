"""Payloads: the test vectors of the contract, the public SDK as counterpart, and damaged input."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from durable_workflow import serializer as sdk
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidInput, Reason, ValidationFailed
from penstock.wire.payloads import DEPTH_MAX, Payload, decode, encode, parse, parse_value

HEADER = bytes.fromhex("c301e2a33dff55802237")

VECTORS: list[tuple[object, str, str]] = [
    (None, "wwHioz3/VYAiNwA=", "00"),
    (True, "wwHioz3/VYAiNwIB", "0201"),
    (1, "wwHioz3/VYAiNwQC", "0402"),
    (-1, "wwHioz3/VYAiNwQB", "0401"),
    (300, "wwHioz3/VYAiNwTYBA==", "04d804"),
    (1.5, "wwHioz3/VYAiNwYAAAAAAAD4Pw==", "06000000000000f83f"),
    (b"a", "wwHioz3/VYAiNwgCYQ==", "080261"),
    ("a", "wwHioz3/VYAiNwoCYQ==", "0a0261"),
    ([], "wwHioz3/VYAiNwwA", "0c00"),
    ([1, "a"], "wwHioz3/VYAiNwwEBAIKAmEA", "0c0404020a026100"),
    ({}, "wwHioz3/VYAiNw4A", "0e00"),
    ({"k": 1}, "wwHioz3/VYAiNw4CAmsEAgA=", "0e02026b040200"),
    ({"a": {"b": [1]}}, "wwHioz3/VYAiNw4CAmEOAgJiDAIEAgAAAA==", "0e0202610e0202620c020402000000"),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=40)
    | st.text(max_size=40)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=25,
)


def blob_of(datum: bytes) -> str:
    return base64.b64encode(HEADER + datum).decode()


def same(left: object, right: object) -> bool:
    """Equal and of equal types all the way down: 1, 1.0 and True are three values, 0.0 and -0.0 are two."""
    return repr(left) == repr(right)


@pytest.mark.parametrize(("value", "blob", "datum"), VECTORS)
def test_the_vectors_of_the_contract_hold_in_both_directions(value: object, blob: str, datum: str) -> None:
    assert encode(value) == Payload("avro", blob)
    assert blob_of(bytes.fromhex(datum)) == blob
    assert same(decode(blob), value)


@settings(deadline=None)
@given(values)
@example([2**63 - 1, -(2**63), 0.0, -0.0, 5e-324, "\x00", {"": None}])
def test_what_is_encoded_comes_back_as_it_was(value: object) -> None:
    assert same(decode(encode(value).blob), value)


@settings(deadline=None)
@given(values)
def test_the_sdk_reads_what_we_write(value: object) -> None:
    payload = encode(value)
    assert same(sdk.decode(payload.blob, payload.codec), value)


@settings(deadline=None)
@given(values)
def test_we_read_what_the_sdk_writes_and_write_the_same_bytes(value: object) -> None:
    blob = sdk.encode(value)
    assert same(decode(blob), value)
    assert encode(value).blob == blob


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (2**63, "64-bit"),
        (-(2**63) - 1, "64-bit"),
        (float("nan"), "not finite"),
        ([float("inf")], "not finite"),
        ({1: 2}, "key"),
        ({"a": {1, 2}}, "set"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
    ],
)
def test_a_value_without_a_place_in_the_schema_is_refused_by_field(value: object, says: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        encode(value, "result")
    assert says in refusal.value.details["errors"]["result"][0]


def nested(depth: int) -> object:
    value: object = None
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def test_depth_is_bounded_when_writing_and_when_reading() -> None:
    assert decode(encode(nested(DEPTH_MAX)).blob) == nested(DEPTH_MAX)
    with pytest.raises(ValidationFailed):
        encode(nested(DEPTH_MAX + 1))
    with pytest.raises(InvalidInput):
        decode(blob_of(b"\x0c\x02" * 100_000))


def test_blocks_with_a_byte_size_are_read_as_avro_allows() -> None:
    assert decode(blob_of(bytes.fromhex("0c 03 08 0402 0404 02 0406 00"))) == [1, 2, 3]
    assert decode(blob_of(bytes.fromhex("0e 01 08 026b 0402 00"))) == {"k": 1}


@pytest.mark.parametrize(
    "datum",
    [
        "",
        "10",
        "01",
        "0202",
        "04",
        "04ffffffffffffffffff02",
        "04ffffffffffffffffffff01",
        "0600000000",
        "06000000000000f07f",
        "06000000000000f87f",
        "0a0461",
        "0a01",
        "0a02ff",
        "0a06eda080",
        "0c",
        "0c02",
        "0cfeffffff0f00",
        "0cffffffffffffffffff0100",
        "0c030604020404",
        "0c010100",
        "0c 03 0a 0402 0404 00",
        "0e02026b",
        "0e04026b0402026b040400",
        "0000",
        "0c0000",
    ],
)
def test_a_damaged_datum_is_refused(datum: str) -> None:
    with pytest.raises(InvalidInput):
        decode(blob_of(bytes.fromhex(datum)))


@pytest.mark.parametrize(
    "blob",
    [
        "",
        "null",
        "wwHioz3/VYAiNwA",
        "wwHioz3/VYAiNwA==",
        "wwHioz3/VYAiNwB=",
        " wwHioz3/VYAiNwA=",
        "wwHioz3/VYAiNwA=\n",
        "wwHioz3_VYAiNwA=",
        "wwHioz3/VYAiNwA=AAAA",
        "wwHioz3/VYAiNw==",
        "wwH\u00e9",
        base64.b64encode(b"\xc3\x01" + bytes(8) + b"\x00").decode(),
        base64.b64encode(b"\xc3\x02" + HEADER[2:] + b"\x00").decode(),
    ],
)
def test_a_damaged_frame_is_refused(blob: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        decode(blob)
    assert refusal.value.reason is Reason.MALFORMED_REQUEST
    with pytest.raises(ValidationFailed) as refused_field:
        parse({"codec": "avro", "blob": blob}, "input")
    assert list(refused_field.value.details["errors"]) == ["input.blob"]


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_make_the_decoder_fail_in_another_way(datum: bytes) -> None:
    try:
        value = decode(blob_of(datum))
    except InvalidInput:
        return
    assert same(decode(encode(value).blob), value)


@settings(deadline=None)
@given(values, st.data())
def test_a_blob_cut_anywhere_is_refused(value: object, data: st.DataObject) -> None:
    datum = base64.b64decode(encode(value).blob)[len(HEADER) :]
    cut = data.draw(st.integers(0, len(datum) - 1))
    with pytest.raises(InvalidInput):
        decode(blob_of(datum[:cut]))


class TestArguments:
    def test_an_envelope_is_taken_as_it_is(self) -> None:
        payload = parse({"codec": "avro", "blob": encode([1]).blob}, "input")
        assert payload == encode([1])
        assert payload.envelope() == {"codec": "avro", "blob": encode([1]).blob}

    @pytest.mark.parametrize(
        ("value", "arguments"),
        [
            (None, []),
            ([], []),
            (["order-1001"], ["order-1001"]),
            ({"order": 1001}, [{"order": 1001}]),
            ({"codec": "h264", "bitrate": 5}, [{"codec": "h264", "bitrate": 5}]),
            ({}, [{}]),
        ],
    )
    def test_plain_json_becomes_an_argument_list(self, value: object, arguments: list[Any]) -> None:
        assert decode(parse(value, "input").blob) == arguments

    @pytest.mark.parametrize(
        ("value", "field"),
        [
            ("order-1001", "input"),
            (7, "input"),
            (True, "input"),
            ({"codec": "json", "blob": "[]"}, "input.codec"),
            ({"codec": None, "blob": "wwHioz3/VYAiNwwA"}, "input.codec"),
            ({"codec": ["avro"], "blob": "wwHioz3/VYAiNwwA"}, "input.codec"),
            ({"codec": "avro"}, "input"),
            ({"codec": "avro", "blob": "wwHioz3/VYAiNwwA", "more": 1}, "input"),
            ({"codec": "avro", "blob": 7}, "input.blob"),
            ({"codec": "avro", "external_storage": {}}, "input"),
            ([2**63], "input"),
        ],
    )
    def test_anything_else_is_refused_by_field(self, value: object, field: str) -> None:
        with pytest.raises(ValidationFailed) as refusal:
            parse(value, "input")
        assert list(refusal.value.details["errors"]) == [field]
        assert refusal.value.details["errors"] == refusal.value.details["validation_errors"]


class TestSingleValues:
    @pytest.mark.parametrize("value", [None, 7, "text", [1], {"a": 1}, True, 1.5])
    def test_plain_json_is_encoded_as_it_is(self, value: object) -> None:
        assert same(decode(parse_value(value, "result").blob), value)

    def test_envelopes_and_bare_blobs_are_taken_as_they_are(self) -> None:
        blob = encode({"total": 3}).blob
        assert parse_value(blob, "result") == Payload("avro", blob)
        assert parse_value({"codec": "avro", "blob": blob}, "result") == Payload("avro", blob)

    def test_a_bare_blob_that_is_damaged_is_not_mistaken_for_text(self) -> None:
        with pytest.raises(ValidationFailed):
            parse_value("wwHioz3/VYAiNw", "result")
