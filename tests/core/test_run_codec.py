"""The stored text of a run's structured fields: rows of released versions are read, and new ones look the same."""

from __future__ import annotations

import pytest

from penstock.core.model import NO_LINEAGE, ClosePolicy, Lineage, ReplayBlock, RetrySchedule, RunId
from penstock.core.run_codec import (
    decode_block,
    decode_lineage,
    decode_waits,
    encode_block,
    encode_lineage,
    encode_waits,
)
from penstock.core.waits import (
    NEW_RUN,
    NEW_RUN_DELIVERING_CANCEL,
    NO_WAITS,
    ConditionWait,
    Selection,
    SelectionMember,
    Waits,
)

MEMBER = SelectionMember("a", 0, 4, 1, "activity", "r1-a4", 1)


@pytest.mark.parametrize(
    ("waits", "stored"),
    [
        (NO_WAITS, "{}"),
        (NEW_RUN, '{"hushed":true}'),
        (NEW_RUN_DELIVERING_CANCEL, '{"hushed":true,"delivers_cancel":true}'),
        (Waits(old=True, selected=True), '{"selected":true,"old":true}'),
        (Waits(concurrent=True, unhandled_signals=2), '{"concurrent":true,"turned_back":2}'),
        (
            Waits(condition=ConditionWait("r1-w1", 1, "paid", fire_at_ms=5, heard=True)),
            '{"condition":{"id":"r1-w1","step":1,"key":"paid","fire_at_ms":5,"heard":true}}',
        ),
        (
            Waits(groups={"g1": 2}, selections=(Selection("s4", 4, 1, {0: MEMBER}),), selected=True),
            '{"groups":{"g1":2},"selections":[["s4",4,1,false,[["a",0,4,1,"activity","r1-a4",1,false,false]]]],'
            '"selected":true}',
        ),
        (
            Waits(concurrent=True, external=(1, 4), ending=(2,), cached=("w1", 12, 500)),
            '{"concurrent":true,"external":[1,4],"ending":[2],"cached":["w1",12,500]}',
        ),
        (Waits(concurrent=True, cached=("w1", 12, 0)), '{"concurrent":true,"cached":["w1",12]}'),
    ],
)
def test_waits_are_stored_under_the_names_of_released_versions(waits: Waits, stored: str) -> None:
    assert encode_waits(waits) == stored
    assert decode_waits(stored) == waits


@pytest.mark.parametrize(
    ("lineage", "stored"),
    [
        (NO_LINEAGE, "{}"),
        (
            Lineage(RunId("r0"), "order-1", 3, ClosePolicy.TERMINATE, first_run_id=RunId("r9")),
            '{"parent_run_id":"r0","parent_workflow_id":"order-1","parent_step":3,"first_run_id":"r9",'
            '"parent_close_policy":"terminate"}',
        ),
        (
            Lineage(retried_from=RunId("r1"), attempt=2, retry=RetrySchedule(3, True, (1, 5), ("Fatal",))),
            '{"retried_from":"r1","attempt":2,"retry":{"max_attempts":3,"backoff_s":[1,5],'
            '"non_retryable_error_types":["Fatal"]}}',
        ),
    ],
)
def test_lineage_is_stored_under_the_names_of_released_versions(lineage: Lineage, stored: str) -> None:
    assert encode_lineage(lineage) == stored
    assert decode_lineage(stored) == lineage


def test_a_block_is_stored_under_the_names_of_released_versions() -> None:
    block = ReplayBlock(
        sequence=4, event_sequence=5, event_type="TimerScheduled", recorded=("TimerScheduled",), message="no"
    )
    stored = (
        '{"reason":"nondeterminism","sequence":4,"event_sequence":5,"event_type":"TimerScheduled",'
        '"recorded":["TimerScheduled"],"yielded":null,"message":"no","worker_id":null,"build_id":null,'
        '"fingerprint":null,"since":null}'
    )
    assert encode_block(block) == stored
    assert decode_block(stored) == block
    assert decode_block(None) is None


@pytest.mark.parametrize(
    ("stored", "recorded"), [('"ActivityScheduled"', ("ActivityScheduled",)), ("null", ()), ("[]", ())]
)
def test_a_block_of_an_early_commit_can_still_be_read(stored: str, recorded: tuple[str, ...]) -> None:
    block = decode_block(
        f'{{"reason":"nondeterminism","sequence":1,"recorded":{stored},"message":"they part"}}'
    )
    assert block == ReplayBlock(sequence=1, recorded=recorded, message="they part")
