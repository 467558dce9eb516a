"""Names that are nearly right are not taken for others."""

from __future__ import annotations

import pytest

from penstock.core.visibility.binding import bind
from penstock.core.visibility.parser import parse
from penstock.core.visibility.problems import QueryProblem
from tests.support.builders import NOW_MS


@pytest.mark.parametrize("slip", ["Stauts", "Statu", "status", "Sttatus"])
def test_a_slip_names_the_field_that_was_meant_even_where_it_would_let_everything_through(slip: str):
    with pytest.raises(QueryProblem, match="Status"):
        bind(parse(f"NOT {slip} = 'running'"), {}, NOW_MS)


def test_a_strict_query_names_only_attributes_that_are_registered():
    query = parse("NOT Tenant = 'blue'")
    bind(query, {}, NOW_MS)
    bind(query, {"Tenant": "keyword"}, NOW_MS, strict=True)
    bind(parse("NOT `Tenant` = 'blue'"), {}, NOW_MS, strict=True)
    with pytest.raises(QueryProblem, match="registered"):
        bind(query, {}, NOW_MS, strict=True)
