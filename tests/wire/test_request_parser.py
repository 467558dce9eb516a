"""Request bodies: every invalid field is named, with what is expected."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import ValidationFailed
from penstock.wire.request_parser import ENTRIES_NAMED_MAX, parse
from penstock.wire.requests import ConfigureQueue, PollTasks

KIND = {"task_queue_type": "activity"}


def wrong(**fields: Any) -> dict[str, list[str]]:
    with pytest.raises(ValidationFailed) as refused:
        parse(KIND | fields, ConfigureQueue)
    errors: dict[str, list[str]] = refused.value.details["errors"]
    return errors


def test_a_misspelt_setting_is_refused_with_the_nearest_ones() -> None:
    assert wrong(queue_rps_limt=5) == {
        "queue_rps_limt": ["is not a known field; did you mean queue_rps_limit?"]
    }


def test_a_setting_that_resembles_none_is_refused_plainly() -> None:
    assert wrong(zzz=5) == {"zzz": ["is not a known field"]}


def test_where_unknown_fields_do_no_harm_they_are_ignored() -> None:
    assert parse({"worker_id": "w1", "task_queue": "q", "zzz": 5}, PollTasks).worker_id == "w1"


def test_unknown_and_wrong_fields_are_named_together() -> None:
    found = wrong(zzz=5, queue_rps_limit=-1, max_running=True)
    assert sorted(found) == ["max_running", "queue_rps_limit", "zzz"]


def test_a_wrong_entry_of_a_mapping_is_named_by_its_key() -> None:
    keys = {"good": {"paused": True}, "bad": {"rps_limit": "fast"}, "odd": {"weight": 1}, "none": 5}
    found = wrong(keys=keys, set_fairness_weight_overrides={"fine": 1, "heavy": 1001})
    assert sorted(found) == [
        "keys.bad.rps_limit",
        "keys.none",
        "keys.odd.weight",
        "set_fairness_weight_overrides.heavy",
    ]


def test_of_many_wrong_entries_only_the_first_are_named() -> None:
    found = wrong(set_fairness_weight_overrides={f"k{number}": 0 for number in range(1000)})
    assert len(found) == ENTRIES_NAMED_MAX


def test_a_key_that_cannot_be_one_is_refused_under_the_name_of_its_mapping() -> None:
    for key in ("", "a\nb", "x" * 65):
        assert list(wrong(set_fairness_weight_overrides={key: 1})) == ["set_fairness_weight_overrides"]
