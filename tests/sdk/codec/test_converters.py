"""Data conversion: what can be encoded, how it is decoded by type hints, and the errors."""

from __future__ import annotations

import copy
import enum
import importlib
import pickle
import re
import subprocess
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import GenericAlias, MappingProxyType
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pytest
from durable_workflow import serializer as other_sdk
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core import payload_codec
from penstock.sdk.converters import (
    DEFAULT,
    ENCODED_KEY,
    ConversionError,
    DataConverter,
    PayloadTooLarge,
    ZlibCodec,
)

GUIDE = Path(__file__).parents[3] / "docs/guides/payloads.md"
ID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 2, 3, 12, 0, 0, 5, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Ratio(enum.Enum):
    HALF = 0.5
    PAIR = (1, 2)


@dataclass
class Item:
    name: str
    price: float = 0.0
    colour: Colour = Colour.RED


@dataclass(frozen=True)
class Order:
    id: UUID
    at: datetime
    items: list[Item] = field(default_factory=list)
    tags: frozenset[str] = frozenset()
    paid: Decimal | None = None
    raw: bytes = b""
    took: timedelta = timedelta(0)
    by_size: dict[Size, int] = field(default_factory=dict)


@dataclass(slots=True)
class Card:
    number: str


@dataclass
class Invoice:
    number: str
    due: date


@dataclass
class Payment:
    by: Card | Invoice
    others: dict[int, Card | Invoice] = field(default_factory=dict)


class Point(msgspec.Struct, rename="camel"):
    x_axis: int
    y_axis: int | msgspec.UnsetType = msgspec.UNSET


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


@attrs.define
class Box:
    _secret: int
    open: bool = False


class Pair(NamedTuple):
    left: int
    right: str


Untyped = namedtuple("Untyped", ["a", "b"])


class Movie(TypedDict):
    title: str
    year: int


T = TypeVar("T")


@dataclass
class Holder(Generic[T]):
    held: T


Cents = NewType("Cents", int)


def sent(value: object, converter: DataConverter = DEFAULT) -> Any:
    """What a reader without hints gets."""
    return converter.decode(converter.encode(value, "it"))


def back(value: object, hint: Any) -> Any:
    return DEFAULT.decode(DEFAULT.encode(value, "it"), hint)


# Encoding

PLAIN_FORMS: list[tuple[object, object]] = [
    (Item("a"), {"name": "a", "price": 0.0, "colour": "red"}),
    (Point(3), {"xAxis": 3}),
    (Circle(1.0), {"type": "circle", "radius": 1.0}),
    (Row(1, "x"), [1, "x"]),
    (Box(7), {"_secret": 7, "open": False}),
    (Pair(1, "r"), [1, "r"]),
    (Untyped(1, 2), [1, 2]),
    ({"z", "a", "m"}, ["a", "m", "z"]),
    (frozenset({3, 1}), [1, 3]),
    ((1, (2,)), [1, [2]]),
    (deque([1]), [1]),
    (OrderedDict(a=1), {"a": 1}),
    (defaultdict(int, a=1), {"a": 1}),
    (MappingProxyType({"a": ()}), {"a": []}),
    (NOON, "2026-02-03T12:00:00.000005Z"),
    (date(2026, 2, 3), "2026-02-03"),
    (time(1, 2), "01:02:00"),
    (timedelta(hours=1), "PT3600S"),
    (ID, str(ID)),
    (Decimal("1.10"), "1.10"),
    (Colour.BLUE, "blue"),
    (Size.LARGE, 2),
    (Ratio.PAIR, [1, 2]),
    (b"\xff\x00", b"\xff\x00"),
    (bytearray(b"\xff"), b"\xff"),
    (memoryview(b"\xff"), b"\xff"),
    ([None, True, 1, 1.5, "x", {"k": [b""]}], [None, True, 1, 1.5, "x", {"k": [b""]}]),
]


@pytest.mark.parametrize(("value", "form"), PLAIN_FORMS, ids=lambda each: type(each).__name__)
def test_every_kind_of_value_has_a_plain_form(value: object, form: object) -> None:
    assert sent(value) == form
    assert type(sent(value)) is type(form)


@pytest.mark.parametrize("value", [form for _, form in PLAIN_FORMS])
def test_another_sdk_reads_what_is_sent(value: object) -> None:
    envelope = DEFAULT.encode(value, "it")
    assert other_sdk.decode(envelope["blob"], envelope["codec"]) == value


def test_keys_that_are_numbers_uuids_or_enums_are_sent_as_text() -> None:
    assert sent({1: "a", ID: "b", Colour.RED: "c"}) == {"1": "a", str(ID): "b", "red": "c"}
    assert back({1: {2: "a"}}, dict[int, dict[int, str]]) == {1: {2: "a"}}
    assert back({ID: 1}, dict[UUID, int]) == {ID: 1}
    assert back({Colour.RED: 1}, dict[Colour, int]) == {Colour.RED: 1}


def test_two_keys_that_become_the_same_text_are_refused() -> None:
    with pytest.raises(ConversionError, match="it has two keys that are both sent as '1'"):
        DEFAULT.encode({1: "a", "1": "b"}, "it")


@pytest.mark.parametrize("key", [1.5, None, True, (1, 2), b"k", NOON])
def test_other_keys_are_refused(key: object) -> None:
    with pytest.raises(
        ConversionError, match=r"^it: \.a has the key .*: keys are text, whole numbers, UUIDs or enums"
    ):
        DEFAULT.encode({"a": {key: 1}}, "it")


def test_a_number_that_is_none_is_refused_with_its_place() -> None:
    order = {"items": [Item("a"), Item("b"), Item("c"), Item("d", price=float("nan"))]}
    with pytest.raises(ConversionError) as refused:
        DEFAULT.encode_arguments(["first", order], 'activity "charge"')
    assert str(refused.value).startswith('argument 2 of activity "charge": .items[3].price is NaN')
    assert refused.value.path == ".items[3].price"
    assert refused.value.what == 'argument 2 of activity "charge"'


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("inf"), "it: it is infinity"),
        ([{"a": float("-inf")}], r"it: \[0\]\.a is -infinity"),
        ({"a b": float("nan")}, r"it: \['a b'\] is NaN"),
        (Circle(float("nan")), r"it: \.radius is NaN"),
        (2**63, "it: it is a whole number beyond 64 bits: send it as text"),
        ({"a": "\ud800"}, r"it: \.a is text with half of a surrogate pair"),
        (object(), "it: it is of the type object, which cannot be sent"),
        ([lambda: 1], r"it: \[0\] is of the type function, which cannot be sent"),
        ((n for n in (1,)), "it: it is of the type generator, which cannot be sent: make a list of it"),
        ([Order], r"it: \[0\] is the class Order itself"),
        (1j, "it: it is of the type complex"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_place(value: object, problem: str) -> None:
    with pytest.raises(ConversionError, match=problem):
        DEFAULT.encode(value, "it")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ConversionError, match="nested deeper than 200 levels, or contains itself"):
        DEFAULT.encode(value, "it")
    with pytest.raises(ConversionError, match="nested deeper"):
        DEFAULT.encode_arguments([value], 'workflow "w"')


def test_the_items_of_a_set_have_one_order_in_every_process() -> None:
    program = (
        "from penstock.sdk.converters import DEFAULT;"
        "print(DEFAULT.encode({'s': {('a', n) for n in 'xyzuvw'}}, 'it')['blob'])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1


# Decoding


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Order(ID, NOON, [Item("a", 1.5)], frozenset({"x"}), Decimal("1.10"), b"\x00", timedelta(1)), Order),
        (Order(ID, NOON, by_size={Size.LARGE: 3}), Order | None),
        (None, Optional[Order]),  # noqa: UP045
        ([Item("a")], list[Item]),
        ({"k": (Item("a"), 1)}, dict[str, tuple[Item, int]]),
        ((1, 2, 3), tuple[int, ...]),
        ({ID}, set[UUID]),
        ([1], Sequence[int]),
        ({"a": 1}, Mapping[str, int]),
        (Pair(1, "r"), Pair),
        (Point(1, 2), Point),
        (Point(1), Point),
        (Row(1, "x"), Row),
        (Box(7, open=True), Box),
        ([Circle(1.0), Square(2.0)], list[Circle | Square]),
        (Movie(title="m", year=1), Movie),
        (Holder(NOON), Holder[datetime]),
        (Cents(3), Cents),
        ("a", Literal["a", "b"]),
        (3, Annotated[int, "cents"]),
        (3, Any),
        (3, None),
        (None, type(None)),
        ("x", int | str),
        (NOON.replace(tzinfo=None), datetime),
        (time(1, 2, 3, 4), time),
        (date(1, 1, 1), date),
        (timedelta(days=-1, microseconds=5), timedelta),
        (Decimal("0.10"), Decimal),
        (Size.LARGE, Size),
        (Colour.BLUE, Colour),
        ([Ratio.HALF, Ratio.PAIR], list[Ratio]),
        (b"\xff", bytes),
        (Payment(Card("1"), {2: Invoice("3", date(2026, 1, 1))}), Payment),
        (Invoice("3", date(2026, 1, 1)), Card | Invoice),
        ([Card("1"), None], list[Card | Invoice | None]),
        ({"a": (Card("1"),)}, dict[str, tuple[Card | Invoice, ...]]),
    ],
    ids=lambda each: re.sub(r"\W+", "-", str(each))[:40],
)
def test_a_value_comes_back_as_its_hint_says(value: object, hint: Any) -> None:
    restored = back(value, hint)
    assert restored == value
    assert type(restored) is type(value)


def test_a_moment_in_a_zone_of_odd_seconds_stays_the_same_moment() -> None:
    moment = datetime(1880, 1, 1, tzinfo=timezone(timedelta(minutes=53, seconds=28)))
    assert back(moment, datetime) == moment


def test_a_whole_number_serves_where_a_float_is_expected_and_base64_where_bytes_are() -> None:
    assert back({"name": "a", "price": 3}, Item) == Item("a", 3.0)
    assert back("/w==", bytes) == b"\xff"


@pytest.mark.parametrize(
    ("value", "hint", "path", "expected", "told"),
    [
        (
            {"name": "a", "price": "b"},
            Item,
            ".price",
            "float",
            "is str, and float is expected (read as Item)",
        ),
        ({"price": 1.0}, Item, "", "Item", "it lacks the field name (read as Item)"),
        ([{"name": 1}], list[Item], "[0].name", "str", "is int, and str is expected"),
        ("x", int, "", "int", "it is str, and int is expected"),
        (None, int, "", "int", "it is None, and int is expected"),
        ("x", int | None, "", "int | None", "it is str, and int | None is expected"),
        ({"a": 1}, dict[int, int], "", "int", "has a key that is str, and int is expected"),
        ("green", Colour, "", "Colour", "has an invalid enum value 'green'"),
        (0.7, Ratio, "", "Ratio", "is 0.7, which is none of the values of Ratio"),
        ("tomorrow", datetime, "", "datetime", "has an invalid RFC3339 encoded datetime"),
        ([1], tuple[int, str], "", "array", "array of length 2"),
        (1, complex, "", "complex", "make complex a dataclass"),
        ({"by": {"number": 3}}, Payment, ".by", "Card | Invoice", "fits none of Card | Invoice"),
        ([{"number": 3}], list[Card | Invoice], "[0]", "Card | Invoice", "fits none of"),
        ({"others": {}}, Payment, "", "Payment", "lacks the field by"),
        (3, Payment, "", "Payment", "is int, and Payment is expected"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place_and_the_expected_type(
    value: object, hint: Any, path: str, expected: str, told: str
) -> None:
    envelope = DEFAULT.encode(value, "it")
    with pytest.raises(ConversionError) as refused:
        DEFAULT.decode(envelope, hint, what='result of activity "charge"')
    assert str(refused.value).startswith('result of activity "charge": ')
    assert told in str(refused.value)
    assert refused.value.path == path
    if expected != "array":
        assert refused.value.expected == expected


def test_arguments_are_read_by_their_own_hints_and_named_by_number() -> None:
    envelope = DEFAULT.encode_arguments([Item("a"), NOON, "rest"], 'workflow "w"')
    assert DEFAULT.decode_arguments(envelope, [Item, datetime]) == [Item("a"), NOON, "rest"]
    with pytest.raises(ConversionError, match=r'^argument 2 of workflow "w": it is str, and int is expected'):
        DEFAULT.decode_arguments(envelope, [Item, int], what='workflow "w"')


def test_nothing_is_no_arguments_and_a_single_value_is_one() -> None:
    assert DEFAULT.decode_arguments(None, [int]) == []
    assert DEFAULT.decode(None, int) is None
    assert DEFAULT.decode_arguments(DEFAULT.encode(3, "it"), [int]) == [3]
    assert DEFAULT.decode_arguments(DEFAULT.encode_arguments([], "it")) == []


def test_a_bare_blob_is_read_like_an_envelope() -> None:
    assert DEFAULT.decode(DEFAULT.encode({"a": 1}, "it")["blob"]) == {"a": 1}


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"codec": "json", "blob": "e30="}, 'it was written by the codec "json"'),
        (
            {"codec": "avro", "external_storage": {}},
            'its envelope holds "external_storage" instead of a "blob"',
        ),
        ({"codec": "avro"}, "its envelope holds nothing"),
        ("nonsense!", "it is damaged: it is not strict base64"),
    ],
)
def test_a_payload_that_cannot_be_read_says_why(payload: Any, told: str) -> None:
    with pytest.raises(ConversionError, match=f"^the payload: {told}"):
        DEFAULT.decode(payload)


plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(max_size=30)
    | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=25,
)
items = st.builds(Item, st.text(), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(Colour))
orders = st.builds(
    Order,
    st.uuids(),
    st.datetimes(timezones=st.just(UTC)),
    st.lists(items, max_size=4),
    st.frozensets(st.text(max_size=5), max_size=4),
    st.none() | st.decimals(allow_nan=False, allow_infinity=False),
    st.binary(max_size=30),
    st.timedeltas(),
    st.dictionaries(st.sampled_from(Size), st.integers(0, 9)),
)
payments = st.builds(
    Payment,
    st.builds(Card, st.text()) | st.builds(Invoice, st.text(), st.dates()),
    st.dictionaries(st.integers(), st.builds(Card, st.text()), max_size=3),
)


class Scrambled:
    """A user's codec, of the same shape as an encrypting one."""

    name = "scrambled"

    def encode(self, data: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in data)

    decode = encode


CODED = DataConverter(codecs=[ZlibCodec(min_size=20), Scrambled()])


@settings(deadline=None)
@given(plain_data, st.sampled_from([DEFAULT, CODED]))
def test_plain_data_comes_back_as_it_was(value: object, converter: DataConverter) -> None:
    assert repr(sent(value, converter)) == repr(value)
    assert repr(converter.decode_arguments(converter.encode_arguments([value, 1], "it"))) == repr([value, 1])


@settings(deadline=None)
@given(orders, st.sampled_from([DEFAULT, CODED]))
def test_nested_dataclasses_come_back_as_they_were(order: Order, converter: DataConverter) -> None:
    assert converter.decode(converter.encode(order, "it"), Order) == order


@settings(deadline=None)
@given(st.lists(payments, max_size=3))
def test_dataclasses_with_alternatives_come_back_as_they_were(payments: list[Payment]) -> None:
    assert back(payments, list[Payment]) == payments


# Codecs


def test_a_compressed_value_says_what_it_is_and_anybody_of_us_reads_it() -> None:
    converter = DataConverter(codecs=[ZlibCodec()])
    envelope = converter.encode("long " * 1000, "it")
    carried: Any = payload_codec.decode(envelope["blob"])
    assert carried[ENCODED_KEY] == ["zlib"]
    assert len(envelope["blob"]) < 200
    assert DEFAULT.decode(envelope, str) == "long " * 1000


@pytest.mark.parametrize("value", ["short", b"\x00\x01\x02"])
def test_a_value_that_compression_does_not_shorten_travels_as_it_is(value: object) -> None:
    converter = DataConverter(codecs=[ZlibCodec(min_size=0)])
    assert converter.encode(value, "it") == DEFAULT.encode(value, "it")


def test_codecs_are_applied_in_order_and_undone_backwards() -> None:
    carried: Any = payload_codec.decode(CODED.encode("long " * 100, "it")["blob"])
    assert carried[ENCODED_KEY] == ["zlib", "scrambled"]
    assert sent("long " * 100, CODED) == "long " * 100


def test_each_argument_is_encoded_by_itself_so_that_others_still_count_them() -> None:
    envelope = CODED.encode_arguments([1, "two" * 100, Item("three")], "it")
    carried: Any = payload_codec.decode(envelope["blob"])
    assert [each[ENCODED_KEY] for each in carried] == [["scrambled"], ["zlib", "scrambled"], ["scrambled"]]
    assert CODED.decode_arguments(envelope, [int, str, Item]) == [1, "two" * 100, Item("three")]


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(
        ConversionError, match=r'it is encoded as "scrambled", and .* has codecs for "zlib" only'
    ):
        DEFAULT.decode(CODED.encode(1, "it"))
    with pytest.raises(ConversionError, match=r'^argument 2 of workflow "w": it is encoded as "scrambled"'):
        envelope = payload_codec.encode([1, payload_codec.decode(CODED.encode(1, "it")["blob"])])
        DEFAULT.decode_arguments(envelope, what='workflow "w"')


def test_a_map_of_the_user_that_looks_encoded_comes_back_as_it_was() -> None:
    value = {ENCODED_KEY: ["zlib"], "data": b"no"}
    assert sent(value) == value
    assert sent(value, CODED) == value
    assert DEFAULT.decode_arguments(DEFAULT.encode_arguments([value], "it")) == [value]


def test_data_that_a_codec_cannot_undo_names_the_codec() -> None:
    blob = payload_codec.encode({ENCODED_KEY: ["zlib"], "data": b"no"})
    with pytest.raises(ConversionError, match='the codec "zlib" cannot decode it: error'):
        DEFAULT.decode(blob)
    with pytest.raises(ConversionError, match="but not the names and bytes that go with it"):
        DEFAULT.decode(payload_codec.encode({ENCODED_KEY: 3}))
    with pytest.raises(ConversionError, match="it is damaged"):
        CODED.decode(payload_codec.encode({ENCODED_KEY: ["scrambled"], "data": b"no"}))


def test_a_compressed_value_cannot_fill_the_memory_of_its_reader() -> None:
    small = DataConverter(codecs=[ZlibCodec(inflated_bytes_max=1000)])
    with pytest.raises(ConversionError, match="more than 1,000 bytes without compression"):
        small.decode(DataConverter(codecs=[ZlibCodec()]).encode("x" * 5000, "it"))


def test_codecs_without_a_name_or_with_the_same_are_refused() -> None:
    class Nameless:
        def encode(self, data: bytes) -> bytes:
            return data

        decode = encode

    with pytest.raises(TypeError, match="Nameless has no name"):
        DataConverter(codecs=[Nameless()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match='two codecs are named "scrambled"'):
        DataConverter(codecs=[Scrambled(), Scrambled()])
    with pytest.raises(ValueError, match="level must be from 0 to 9"):
        ZlibCodec(level=12)


# Size


def test_a_value_that_is_too_large_is_refused_with_sizes_and_a_way_out() -> None:
    converter = DataConverter(payload_bytes_max=1000)
    with pytest.raises(PayloadTooLarge) as refused:
        converter.encode("x" * 1000, 'result of activity "report"')
    assert re.match(
        r'result of activity "report": it takes 1,3\d\d bytes encoded, and payload_bytes_max is 1,000\. '
        r"Keep it elsewhere and pass a reference to it, or compress it",
        str(refused.value),
    )
    with pytest.raises(PayloadTooLarge, match=r'^the arguments of activity "a": it takes'):
        converter.encode_arguments(["x" * 500, "y" * 500], 'activity "a"')


def test_the_bound_holds_for_what_is_sent_and_so_after_compression() -> None:
    converter = DataConverter(codecs=[ZlibCodec()], payload_bytes_max=1000)
    assert sent("x" * 10_000, converter) == "x" * 10_000


# Guide and layering


def test_refusals_survive_being_copied_between_processes() -> None:
    for error in (ConversionError("w", "p", path=".x", expected="int"), PayloadTooLarge("w", 2, 1)):
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert str(twin) == str(error)
            assert vars(twin) == vars(error)


def test_pydantic_is_not_imported_for_those_who_do_not_use_it() -> None:
    program = (
        "import sys; from penstock.sdk.converters import DEFAULT;"
        "DEFAULT.decode(DEFAULT.encode({'a': (1,)}, 'it'), dict[str, list[int]]);"
        "assert 'pydantic' not in sys.modules and 'cryptography' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_pydantic_models_come_back_as_they_were() -> None:
    pydantic: Any = importlib.import_module("pydantic")
    size = pydantic.Field(default=1, alias="lineSize")
    Line = pydantic.create_model(
        "Line", name=(str, ...), price=(Decimal, ...), at=(datetime, ...), size=(int, size)
    )
    Cart = make_dataclass("Cart", [("lines", GenericAlias(list, (Line,)))])

    line = Line(name="a", price=Decimal("1.10"), at=NOON, lineSize=3)
    assert back(line, Line) == line
    assert back([line], GenericAlias(list, (Line,))) == [line]
    assert back(Cart([line]), Cart) == Cart([line])
    assert sent(line)["lineSize"] == 3
    with pytest.raises(ConversionError, match=r"\.lines\[0\]\.price does not fit: .*read as Line"):
        back({"lines": [{"name": "a", "price": "x", "at": "2026-01-01T00:00:00Z"}]}, Cart)


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_encryption_of_the_guide_hides_values_and_gives_them_back() -> None:
    (example,) = [each for each in examples() if "Fernet" in each]
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(example, str(GUIDE), "exec"), names)
    old, new = names["Fernet"].generate_key(), names["Fernet"].generate_key()
    first = DataConverter(codecs=[names["EncryptionCodec"]({"k1": old}, current="k1")])
    both = DataConverter(codecs=[ZlibCodec(), names["EncryptionCodec"]({"k1": old, "k2": new}, current="k2")])
    envelope = first.encode({"card": "4111"}, "it")
    assert b"4111" not in str(payload_codec.decode(envelope["blob"])).encode()
    assert first.decode(envelope) == both.decode(envelope) == {"card": "4111"}
    assert both.decode(both.encode("x" * 5000, "it")) == "x" * 5000
    with pytest.raises(ConversionError, match=r'the codec "fernet" cannot decode it: .*k2'):
        first.decode(both.encode(1, "it"))
