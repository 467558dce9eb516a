"""Names that are nearly right are not taken for others."""

from __future__ import annotations

import pytest

from penstock.core.visibility.binder import bind
from penstock.core.visibility.parser import parse
from penstock.core.visibility.query_errors import QueryProblem
from tests.support.builders import NOW_MS


@pytest.mark.parametrize("slip", ["Stauts", "Statu", "status", "Sttatus"])
def test_a_slip_names_the_field_that_was_meant_even_where_it_would_let_everything_through(slip: str):
    with pytest.raises(QueryProblem, match="Status"):
        bind(parse(f"NOT {slip} = 'running'"), {}, NOW_MS)


def test_a_query_names_only_attributes_that_are_registered_or_stand_in_backquotes():
    query = parse("NOT Tenant = 'blue'")
    bind(query, {"Tenant": "keyword"}, NOW_MS)
    bind(parse("NOT `Tenant` = 'blue'"), {}, NOW_MS)
    with pytest.raises(QueryProblem, match="none is registered yet"):
        bind(query, {}, NOW_MS)


def test_an_unregistered_name_is_answered_with_the_registered_ones_the_nearest_first():
    with pytest.raises(QueryProblem, match="Expected Customer, "):
        bind(
            parse("CustomersRegion = 'acme'"),
            {"Amount": "int", "Zone": "keyword", "Customer": "keyword"},
            NOW_MS,
        )
