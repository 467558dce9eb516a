"""Whether a starting worker may change a cap."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits.declared_caps import (
    CapClaim,
    CapOutcome,
    Declarant,
    LiveCap,
    decide,
    parse_live_cap,
    resolve_claims,
)

caps = st.one_of(st.none(), st.integers(0, 6))
declarants = st.builds(Declarant, st.sampled_from(["shop", "mail"]), st.integers(0, 3))
starts = st.tuples(caps, declarants)


def started(
    live: LiveCap | None, wanted: int | None, by: Declarant, declared: int | None = None
) -> LiveCap | None:
    """What is live after a worker has started."""
    outcome = decide(wanted, by, live, declared)
    if not outcome.is_change:
        return live
    if outcome is CapOutcome.HANDED_BACK:
        return None
    assert wanted is not None
    after = resolve_claims(wanted, by, live)
    return parse_live_cap(after.value, after.reason)


def effective(live: LiveCap | None, declared: int | None) -> float:
    if live is not None:
        return live.value
    return float("inf") if declared is None else declared


@given(st.lists(starts, max_size=12), st.one_of(st.none(), st.integers(0, 6)))
def test_no_start_lifts_a_cap_and_only_a_newer_version_of_its_app_raises_one(
    told: list[tuple[int | None, Declarant]], declared: int | None
) -> None:
    live: LiveCap | None = None
    for wanted, by in told:
        before = live
        live = started(live, wanted, by, declared)
        if effective(live, declared) > effective(before, declared):
            assert live is not None
            assert before is not None
            assert before.declarant is not None
            assert by.app == before.declarant.app
            assert by.version > before.declarant.version
            assert declared is None or live.value <= declared
        if before is not None and live is not None:
            for app, claim in before.claims.items():
                assert live.claims[app].declarant.version >= claim.declarant.version


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=4))
def test_the_order_in_which_workers_of_one_app_start_does_not_matter(told: list[tuple[int, int]]) -> None:
    """`cap-order-independent`: the lowest value of the highest version is in force in the end."""
    newest = max(version for _, version in told)
    expected = min(value for value, version in told if version == newest)
    for order in permutations(told):
        live: LiveCap | None = None
        for value, version in order:
            live = started(live, value, Declarant("shop", version))
        assert live == LiveCap(expected, Declarant("shop", newest))


@given(st.lists(st.tuples(st.integers(0, 4), declarants), min_size=1, max_size=4))
def test_the_order_in_which_workers_of_two_apps_start_does_not_matter(
    told: list[tuple[int, Declarant]],
) -> None:
    """Each app has the lowest value of its highest version, and the lowest of these is in force."""
    newest = {by.app: max(each.version for _, each in told if each.app == by.app) for _, by in told}
    expected = min(value for value, by in told if by.version == newest[by.app])
    for order in permutations(told):
        live: LiveCap | None = None
        for value, by in order:
            live = started(live, value, by)
        assert live is not None
        assert live.value == expected


def test_an_app_that_raises_its_cap_does_not_raise_it_above_that_of_another_app() -> None:
    live = started(LiveCap(5, Declarant("shop")), 3, Declarant("mail"))
    assert live == LiveCap(3, Declarant("mail"), (CapClaim(Declarant("shop"), 5),))
    raised = started(live, 8, Declarant("mail", 1))
    assert raised == LiveCap(5, Declarant("shop"), (CapClaim(Declarant("mail", 1), 8),))


def test_claims_for_which_the_reason_has_no_room_are_left_out_and_not_recorded_again_and_again() -> None:
    live: LiveCap | None = None
    for number in range(50):
        live = started(live, number, Declarant(f"{number:0100d}"))
    assert live is not None
    kept = parse_live_cap(live.value, live.reason)
    assert len(live.reason) <= 1000
    assert kept.value == 0
    assert decide(49, Declarant(f"{49:0100d}"), kept, None) is CapOutcome.KEPT_OTHER_APP


@given(caps, declarants, st.integers(0, 6), st.one_of(st.none(), st.integers(0, 6)))
def test_no_start_changes_what_an_operator_set(
    wanted: int | None, by: Declarant, value: int, declared: int | None
) -> None:
    assert not decide(wanted, by, LiveCap(value, None), declared).is_change


@given(st.text(min_size=1), st.integers(0, 10**6))
def test_the_recorded_reason_names_the_app_and_its_version(app: str, version: int) -> None:
    by = Declarant(app, version)
    assert parse_live_cap(1, by.reason) == LiveCap(1, by)


def test_reasons_of_earlier_releases_and_of_operators() -> None:
    assert parse_live_cap(1, "AppConfig of shop") == LiveCap(1, Declarant("shop", 0))
    assert parse_live_cap(1, "slow database") == LiveCap(1, None)
    assert parse_live_cap(1, None) == LiveCap(1, None)


def test_a_lower_cap_of_the_servers_takes_the_place_of_one_from_a_configuration() -> None:
    by = Declarant("shop", 1)
    assert decide(5, by, LiveCap(5, by), 2) is CapOutcome.HANDED_BACK
    assert decide(3, by, None, 2) is CapOutcome.KEPT_SERVER
    assert decide(2, by, None, 2) is CapOutcome.SET
