"""Routes: literals take precedence over parameters, which are decoded after matching."""

from __future__ import annotations

from penstock.server.routing import Routes

ROUTES = Routes(
    {
        "/api/workflows": "list",
        "/api/workflows/batch": "batch",
        "/api/workflows/{workflow_id}": "describe",
        "/api/workflows/{workflow_id}/runs/{run_id}": "run",
    }
)


def test_a_literal_segment_goes_before_a_name():
    assert ROUTES.find("/api/workflows/batch") == ("batch", {})
    assert ROUTES.find("/api/workflows/other") == ("describe", {"workflow_id": "other"})
    assert ROUTES.find("/api/workflows/batch/runs/r1") == ("run", {"workflow_id": "batch", "run_id": "r1"})


def test_an_encoded_slash_is_part_of_a_name():
    assert ROUTES.find("/api/workflows/a%2Fb%20c") == ("describe", {"workflow_id": "a/b c"})


def test_a_name_that_is_a_literal_is_found_where_the_literal_does_not_fit():
    assert ROUTES.find("/api/workflows/batch", lambda found: found != "batch") == (
        "describe",
        {"workflow_id": "batch"},
    )
    assert ROUTES.find("/api/workflows/%62atch") == ("describe", {"workflow_id": "batch"})
    assert ROUTES.find("/api/workflows", lambda _: False) is None


def test_what_is_no_path_leads_nowhere():
    for path in (
        "",
        "api/workflows",
        "/api",
        "/api/workflows/",
        "/api//workflows",
        "/api/workflows/%ff",
        "/x",
    ):
        assert ROUTES.find(path) is None
