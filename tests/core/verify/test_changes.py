"""Which limits may have been in force during a call, compared with every order in which changes may take effect."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.verify.limit_changes import LimitChanges
from penstock.core.verify.observations import LimitsSet, LimitValue

SCOPE, LIMIT = "cluster", "max_active_leases"


@st.composite
def changes(draw: st.DrawFn) -> list[LimitsSet]:
    """Each of its own value; all times differ, so that no two moments are the same one."""
    times = draw(st.permutations(range(1, 17)))
    found = []
    for number in range(draw(st.integers(1, 4))):
        t_inv, t_ok = sorted(times[2 * number : 2 * number + 2])
        answered = draw(st.booleans()) or number == 0
        verdict = draw(st.sampled_from(["accepted", "accepted", "refused"])) if answered else "unknown"
        told = {LIMIT: number}
        found.append(LimitsSet(t_inv, SCOPE, told, t_ok if answered else None, verdict))  # type: ignore[arg-type]
    return found


def by_every_order(seen: list[LimitsSet], since: float, until: float) -> set[LimitValue] | None:
    """All values that some order of effects allows at some moment of the call."""
    real = [each for each in seen if each.verdict != "refused"]
    if not any(each.verdict == "accepted" and each.t_ok is not None and each.t_ok <= since for each in real):
        return None
    values: set[LimitValue] = set()
    for order in permutations(real):
        for taken in range(1, len(order) + 1):
            before, after = order[:taken], order[taken:]
            in_order = all(
                earlier.t_inv < (later.t_ok if later.t_ok is not None else 1e9)
                for index, earlier in enumerate(order)
                for later in order[index + 1 :]
            )
            done = all(each.t_inv <= until for each in before)
            due = all(each.t_ok is None or each.t_ok > since for each in after)
            if in_order and done and due:
                values.add(before[-1].limits[LIMIT])
    return values


@given(changes(), st.tuples(st.integers(0, 18), st.integers(0, 18)).map(sorted))
def test_a_value_is_possible_exactly_if_some_order_of_effects_allows_it(
    seen: list[LimitsSet], call: list[int]
) -> None:
    since, until = call[0] + 0.5, call[1] + 0.6
    assert LimitChanges(seen).possible(SCOPE, LIMIT, since, until) == by_every_order(seen, since, until)


def test_a_limit_that_ends_by_itself_is_known_until_then() -> None:
    seen = LimitChanges([LimitsSet(0, SCOPE, {LIMIT: 3}, 1, "accepted", expires_in_ms=100)])
    assert seen.possible(SCOPE, LIMIT, 2, 99) == frozenset[LimitValue]({3})
    assert seen.possible(SCOPE, LIMIT, 2, 100) is None
