"""Search attributes: values fit the types that they are registered with."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.visibility.attributes import TYPES, check, is_reserved

FITTING: dict[str, list[Any]] = {
    "keyword": ["", "a"],
    "text": ["a"],
    "int": [0, -7, 2**63 - 1],
    "double": [0, 1.5],
    "bool": [True, False],
    "datetime": ["2026-01-01", "2026-01-01T00:00:00.123+02:00"],
    "keyword_list": [[], ["a", "b"]],
}
UNFIT: dict[str, list[Any]] = {
    "keyword": [1, True, ["a"]],
    "text": [1.5],
    "int": [1.0, "1", True],
    "double": ["1", True, [1]],
    "bool": [0, "true"],
    "datetime": ["soon", 1_700_000_000, "2026-02-30"],
    "keyword_list": ["a", [1], ["a", None]],
}


@pytest.mark.parametrize("type_", TYPES)
def test_a_value_fits_its_type_or_is_told_so(type_: str) -> None:
    for value in FITTING[type_]:
        assert check({"A": value}, {"A": type_}) == {}
    for value in UNFIT[type_]:
        (told,) = check({"A": value}, {"A": type_})["A"]
        assert type_ in told


def test_null_removes_and_what_nobody_registered_is_refused() -> None:
    assert check({"A": None, "Gone": None}, {"A": "int"}) == {}
    problems = check({"A": 1, "B": "thing"}, {"A": "int"})
    assert list(problems) == ["B"]
    assert "penstock search-attribute create B" in problems["B"][0]


def test_routing_keys_of_the_server_may_be_handed_on() -> None:
    assert check({"RoutingKey": ["opus"]}, {}) == {}


def test_names_that_queries_need_are_reserved() -> None:
    for name in ("WorkflowType", "Status", "memo", "Memo", "and", "NOT", "order", "true", "wf_id", "WF_x"):
        assert is_reserved(name)
    assert not is_reserved("Customer")
    assert not is_reserved("wf")
