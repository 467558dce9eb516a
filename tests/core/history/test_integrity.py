"""The seal of an exported history."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.history.integrity import Seal, canonical

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(json_values)
def test_a_value_has_one_text_whoever_read_it_and_wrote_it_again(value: Any) -> None:
    assert canonical(json.loads(canonical(value))) == canonical(value)


def test_keys_stand_in_order_at_every_depth() -> None:
    assert canonical({"b": [{"z": 1, "a": "é"}], "a": None}) == '{"a":null,"b":[{"a":"é","z":1}]}'.encode()


@given(st.lists(st.binary()), st.none() | st.text(min_size=1, alphabet="abc"))
def test_parts_are_sealed_as_the_whole_is(parts: list[bytes], key: str | None) -> None:
    seal = Seal(key)
    for part in parts:
        seal.add(part)
    whole = b"".join(parts)
    assert seal.block()["checksum"] == hashlib.sha256(whole).hexdigest()
    expected = None if key is None else hmac.new(key.encode(), whole, "sha256").hexdigest()
    assert seal.block()["signature"] == expected


def test_what_is_said_of_the_key_tells_one_from_another_and_not_the_key() -> None:
    one, other = Seal("first key").block()["key_id"], Seal("second key").block()["key_id"]
    assert one is not None
    assert one != other
    assert one not in hashlib.sha256(b"first key").hexdigest()
    assert Seal().block()["key_id"] is None
