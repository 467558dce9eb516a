"""References to external payloads: their forms, and when an object is still needed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.external_payloads import (
    Collection,
    ExternalPayload,
    ExternalReference,
    PayloadState,
    blob_of,
    collection,
    content_of,
    envelope,
    is_reference_id,
    object_key,
    read_reference,
    recorded,
    reference_id,
    reference_of,
    references_in,
)
from penstock.core.model import Blob
from penstock.core.payload_codec import encode

references = st.builds(
    ExternalReference,
    reference_id=st.integers(0, 2**128 - 1).map(reference_id),
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    size_bytes=st.integers(0, 2**40),
)
texts = st.text() | st.text("ep_0123456789ABCDEFGHJKMNPQRSTVWXYZ.abcdef", max_size=200)


@given(references)
def test_every_form_of_a_reference_leads_back_to_it(reference: ExternalReference) -> None:
    assert is_reference_id(reference.reference_id)
    assert reference_of(reference.blob) == reference
    sent = json.loads(json.dumps(envelope(reference.blob)))
    assert read_reference(sent["external_payload"]) == reference
    event = recorded({"result": reference.blob, "message": reference.blob, "other": 1})
    assert event["message"] == reference.blob, "only payloads are payloads"
    assert blob_of(event["result"]) == reference.blob
    assert references_in(json.dumps(event)) == [reference.reference_id]


@given(st.recursive(st.none() | st.booleans() | st.text(), st.lists, max_leaves=5))
def test_an_encoded_payload_is_never_taken_for_a_reference(value: object) -> None:
    blob = encode(value)
    assert reference_of(blob) is None
    assert envelope(blob) == {"codec": "avro", "blob": blob}
    assert recorded({"result": blob}) == {"result": blob}
    assert content_of(blob) == blob


@given(texts)
def test_any_text_is_read_without_failing(text: str) -> None:
    for name in references_in(text):
        assert is_reference_id(name)
    found = reference_of(text)
    assert found is None or found.blob == text or found.size_bytes == int(text.rpartition(".")[2])
    read_reference({"reference_id": text, "sha256": text, "size_bytes": 1, "schema": text, "codec": "avro"})


@given(references, references)
def test_the_same_bytes_uploaded_twice_are_the_same_content(
    one: ExternalReference, other: ExternalReference
) -> None:
    again = ExternalReference(other.reference_id, one.sha256, one.size_bytes)
    assert content_of(one.blob) == content_of(again.blob)


@given(references, st.text("abc.-_0", min_size=1, max_size=20).filter(lambda name: name not in (".", "..")))
def test_a_key_never_leads_out_of_its_place(reference: ExternalReference, namespace: str) -> None:
    parts = object_key(namespace, reference.reference_id).split("/")
    assert len(parts) == 3
    assert not {"", ".", ".."} & set(parts)
    assert not parts[0].startswith(".")


@pytest.mark.parametrize("state", list(PayloadState))
@pytest.mark.parametrize(
    ("check_at_ms", "used", "expected"),
    [
        (None, False, Collection.WAIT),
        (11, False, Collection.WAIT),
        (10, True, Collection.KEEP),
        (10, False, Collection.DELETE),
    ],
)
def test_an_object_is_deleted_only_when_its_time_has_come_and_nothing_uses_it(
    state: PayloadState, check_at_ms: int | None, used: bool, expected: Collection
) -> None:
    payload = ExternalPayload(reference_id(1), "n", "{}", "", 1, state, 0, check_at_ms)
    if state is PayloadState.DELETING and expected is Collection.KEEP:
        expected = Collection.DELETE
    assert collection(payload, 10, used=used) is expected


def test_a_reference_with_more_or_other_fields_is_none() -> None:
    fields = ExternalReference(reference_id(7), "a" * 64, 5).fields
    assert read_reference(fields) is not None
    for change in (
        {"uri": "http://x"},
        {"codec": "json"},
        {"size_bytes": True},
        {"size_bytes": -1},
        {"sha256": "A" * 64},
        {"reference_id": "ep_" + "I" * 26},
        {"schema": "durable-workflow.v2.external-payload-reference.v1"},
    ):
        assert read_reference(fields | change) is None
    assert read_reference({name: value for name, value in fields.items() if name != "codec"}) is None
    assert reference_of(Blob("ep_short.x.1")) is None
