"""Models: what is drawn from them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.simulator.balance import overloads
from penstock.simulator.changes import (
    Change,
    changed,
    parse_key_load,
    parse_kill,
    parse_setting,
    parse_workers,
)
from penstock.simulator.model_file import generate, read_model
from penstock.simulator.quantiles import Quantiles, uniform
from penstock.wire.limits.limit_paths import LimitSettings, LimitTarget, requests_for
from tests.simulator.loads import backlog, model, workers

ROOT = Path(__file__).parents[2]

STREAM = {"queue": "q", "key": "a", "per_minute": 60, "takes": {"p50": "2s", "p99": "20s"}}


@given(seed=st.integers(0, 10**9), labels=st.lists(st.text(max_size=5), min_size=1, max_size=3))
def test_a_draw_depends_on_its_labels_alone(seed: int, labels: list[str]) -> None:
    drawn = uniform(seed, *labels)
    assert 0 <= drawn < 1
    assert uniform(seed, *labels) == drawn


@given(
    values=st.lists(st.integers(0, 10**6), min_size=2, max_size=6),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_quantiles_do_not_fall(values: list[int], shares: tuple[float, float]) -> None:
    points = len(values) - 1
    of = Quantiles(tuple(number / points for number in range(points + 1)), tuple(map(float, sorted(values))))
    low, high = sorted(shares)
    assert of.values[0] <= of.at(low) <= of.at(high) + 1e-6
    assert of.at(1) == of.values[-1]
    assert of.values[0] <= of.mean <= of.values[-1]


def test_a_stream_has_about_its_rate_and_its_quantiles() -> None:
    arrivals = generate(model(duration="60m", arrivals=[STREAM]), 1, 10_000).arrivals
    assert 3_300 < len(arrivals) < 3_900
    took = sorted(each.attempts[0].duration_ms for each in arrivals)
    assert 1_800 < took[len(took) // 2] < 2_200
    assert 18_000 < took[len(took) * 99 // 100] <= 20_000


def test_the_nth_task_of_a_stream_takes_as_long_with_and_without_a_change() -> None:
    """Common random numbers: otherwise a change could not be told from luck."""
    before = model(duration="5m", arrivals=[STREAM, STREAM | {"key": "b"}])
    after = changed(before, [parse_key_load("b=3x"), parse_workers("2x")])

    def of_a(which: object) -> list[object]:
        return [each for each in generate(which, 1, 10_000).arrivals if each.key == "a"]  # type: ignore[arg-type]

    assert of_a(before) == of_a(after)


def test_a_key_that_leaves_sends_nothing() -> None:
    after = changed(model(arrivals=[backlog(5, "a"), backlog(3, "b")]), [parse_key_load("a=0x")])
    assert [each.key for each in generate(after, 1, 100).arrivals] == ["b"] * 3


def test_more_tasks_than_allowed_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidInput, match="--tasks-max"):
        generate(model(arrivals=[backlog(101)]), 1, 100)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "arrivals"),
        ("duration = 5", "arrivals"),
        ("[[arrivals]]\ncount = 1", "queue"),
        ('[[arrivals]]\nqueue = "q"', "either per_minute"),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\nper_minute = 2', "either per_minute"),
        ('[[arrivals]]\nqueue = "q"\nper_minut = 2', "did you mean per_minute"),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\ntakes = "2 parsecs"', "not a duration"),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\ntakes = { p90 = "1s", p50 = "2s" }', "quantiles fall"),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\ntakes = {}', "at least one"),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\ntakes = "25h"', "longer than a day"),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\npriority = 3\npriority_key = 2', "one scale"),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\nfails = 1.5', "fails"),
        ('[[arrivals]]\nqueue = "q"\nper_minute = 1\nstarts = "2m"\nends = "1m"', "ends before"),
        (
            '[[arrivals]]\nqueue = "q"\ncount = 1\n[[workers]]\nqueue = "q"\nleaves = 1\ndies = 2',
            "leaves and dies",
        ),
        (
            '[[arrivals]]\nqueue = "q"\ncount = 1\n[queues.q]\nmax_activ_leases = 1',
            "did you mean max_active_leases",
        ),
        ('[[arrivals]]\nqueue = "q"\ncount = 1\n[cluster]\nmax_runing = 1', "cluster has no setting"),
        ("[[arrivals", "line 1"),
    ],
)
def test_a_model_that_is_wrong_is_refused_with_the_field(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "model.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=named):
        read_model(path)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("queue:a.b.max_active_leases=5", ("a.b", ("max_active_leases",), 5)),
        ("queue:q.weights.tenant.one=2.5", ("q", ("weights", "tenant.one"), 2.5)),
        ("queue:q.keys.a.max_running=1", ("q", ("keys", "a", "max_running"), 1)),
        ("group:llm.max_cost_per_minute=default", ("llm", ("max_cost_per_minute",), "default")),
        ("cluster.paused=true", ("", ("paused",), True)),
    ],
)
def test_a_setting_names_its_limit_and_value(text: str, path: tuple[str, tuple[str, ...], object]) -> None:
    setting = parse_setting(text)
    assert (setting.target.name, setting.path, setting.value) == path


@pytest.mark.parametrize(
    "text",
    [
        "queue:q.max_active_leases",
        "invoices=5",
        "queue:q.max_activ_leases=5",
        "worker.slots=1",
        "queue:q=5",
        "=",
        "",
    ],
)
def test_a_setting_that_names_no_limit_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_setting(text)


def test_approvals_of_changes_cannot_be_rehearsed() -> None:
    asked = LimitSettings(LimitTarget("namespace"), {"change_approvals": 1})
    with pytest.raises(InvalidInput, match="changes nothing of a load"):
        list(requests_for(asked))


@pytest.mark.parametrize("text", ["-1", "q=", "q=many", "=x", "1e9", "2000x"])
def test_a_number_of_workers_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_workers(text)


def test_a_change_for_a_queue_or_key_that_the_model_lacks_is_refused_with_the_nearest() -> None:
    there = model(arrivals=[backlog(1, "tenant-a")], workers=[workers(), workers()])
    wrong: list[tuple[Change, str]] = [
        (parse_setting("queue:qq.paused=true"), "did you mean q"),
        (parse_key_load("tenant-b=2x"), "did you mean tenant-a"),
        (parse_kill("qq@1m"), "did you mean q"),
        (parse_workers("5"), "2 pools"),
    ]
    for change, named in wrong:
        with pytest.raises(InvalidInput, match=named):
            changed(there, [change])


def test_a_setting_in_force_from_the_beginning_is_not_undone_by_the_file() -> None:
    later = {"at": "1m", "queues": {"q": {"max_active_leases": 9, "paused": False}}}
    after = changed(
        model(arrivals=[backlog(1)], changes=[later]), [parse_setting("queue:q.max_active_leases=2")]
    )
    assert after.queues == {"q": {"max_active_leases": 2}}
    assert after.changes[0].queues == {"q": {"paused": False}}


def test_what_arrives_is_held_against_slots_caps_and_budgets() -> None:
    """60 tasks a minute of 2 to 20 seconds occupy about five slots."""
    limits = {"max_active_leases": 3, "max_dispatches_per_minute": 50, "queue_rps_limit": 0.5}
    found = [
        str(each)
        for each in overloads(model(arrivals=[STREAM], workers=[workers(slots=2)], queues={"q": limits}))
    ]
    assert len(found) == 4
    assert "slots of workers" in found[0]
    assert not list(overloads(model(arrivals=[STREAM], workers=[workers(slots=50)])))


def test_the_model_of_the_guide_is_the_example_and_is_valid() -> None:
    example = ROOT / "docs" / "examples" / "monday.toml"
    assert f"```toml\n{example.read_text()}```" in (ROOT / "docs" / "guides" / "rehearsal.md").read_text()
    assert len(generate(read_model(example), 1, 10_000).arrivals) > 1_000
