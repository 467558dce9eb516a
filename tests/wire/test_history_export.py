"""A history export, read by the verifier of the public SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from durable_workflow.history_bundle_verify import verify_bundle, verify_bundle_json

from penstock.core.audit.bundle import Bundle, Outline
from penstock.core.model import Blob, RecordedEvent, Run, RunStatus
from penstock.core.payload_codec import encode
from penstock.wire.operations.history_export import BundleWriter
from tests.support.builders import NOW_MS, a_run, an_event

EVENTS = [
    an_event("r1", 1, "WorkflowStarted", payload='{"workflow_type":"Order"}'),
    an_event(
        "r1", 2, "ActivityScheduled", payload='{"activity_execution_id":"r1-a1","sequence":1,"price":1e16}'
    ),
    an_event("r1", 3, "SignalReceived", payload='{"signal_name":"grüß","workflow_command_id":"c1"}'),
    an_event("r1", 4, "WorkflowCompleted", payload='{"output":"AQ=="}', task_id="r1-2"),
]


def closed_run(**changes: Any) -> Run:
    return a_run(
        "r1",
        **{
            "status": RunStatus.COMPLETED,
            "closed_at_ms": NOW_MS,
            "last_sequence": 4,
            "input": encode(["Ada"]),
            "output": encode("done"),
            "memo": '{"note":"ü"}',
        }
        | changes,
    )


def written(run: Run, *pages: list[RecordedEvent], key: str | None = None) -> bytes:
    outline = Outline()
    for page in pages:
        for event in page:
            outline.add(event)
    writer = BundleWriter(Bundle(run, run.run_id, 1, NOW_MS, outline), key)
    return b"".join([writer.head(), *(writer.events(page) for page in pages), writer.tail()])


@pytest.mark.parametrize("cut", range(5))
def test_the_verifier_accepts_it_however_it_was_cut_into_pages(cut: int) -> None:
    report = verify_bundle_json(written(closed_run(), EVENTS[:cut], EVENTS[cut:]).decode())
    assert (report["status"], report["findings"]) == ("ok", [])
    assert report["integrity"]["checksum_matches"] is True
    assert report["bundle"]["history_event_count"] == 4


def test_a_run_without_events_or_output_is_accepted() -> None:
    run = closed_run(status=RunStatus.WAITING, closed_at_ms=None, last_sequence=0, output=None)
    bundle = json.loads(written(run, []))
    assert verify_bundle(bundle)["status"] == "ok"
    assert bundle["history_complete"] is False
    assert bundle["payloads"]["output"] == {"available": False, "codec": "avro", "data": None}


def test_a_key_signs_it_and_another_key_does_not_fit() -> None:
    text = written(closed_run(), EVENTS, key="a key of ours").decode()
    assert verify_bundle_json(text, "a key of ours")["integrity"]["signature_verified"] is True
    assert verify_bundle_json(text, "another key")["summary"]["findings_by_rule"] == {
        "integrity.signature_mismatch": 1
    }


def test_a_changed_event_is_noticed() -> None:
    bundle = json.loads(written(closed_run(), EVENTS))
    bundle["history_events"][1]["payload"]["sequence"] = 2
    assert verify_bundle(bundle)["summary"]["findings_by_rule"] == {"integrity.checksum_mismatch": 1}


def test_every_event_has_its_name_twice_and_the_first_what_the_run_was_started_with() -> None:
    bundle = json.loads(written(closed_run(input=Blob("AA==")), EVENTS))
    first, *_ = events = bundle["history_events"]
    assert all(each["type"] == each["event_type"] for each in events)
    assert (first["payload"]["arguments"], first["payload"]["payload_codec"]) == ("AA==", "avro")
    assert [each["workflow_command_id"] for each in events] == ["r1-start", None, "c1", None]
    assert bundle["summary"]["history_events_by_type"]["SignalReceived"] == 1
