"""Laws of change sets: what is applied, what an expiry takes back, and what it leaves to others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits.change_sets import (
    ChangeSet,
    ChangeSetState,
    Current,
    CurrentValue,
    ItemTarget,
    applied,
    decoded,
    draft,
    encoded,
    inverse,
    moved,
    taken_over,
    undoing,
)

VALUES = st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["on", "sliding"]))
TARGETS = st.builds(
    ItemTarget,
    st.sampled_from(["queue:default/a/activity", "namespace:default", "group:default/llm"]),
    st.sampled_from(["max_running", "paused"]),
    st.one_of(st.none(), st.sampled_from(["acme", "zeta"])),
)
ASKED = st.dictionaries(TARGETS, VALUES, min_size=1, max_size=6)


def values(contents: dict[ItemTarget, int | str | None]) -> Current:
    return {target: CurrentValue(value, "somebody", 1) for target, value in contents.items()}


@given(ASKED, st.data())
def test_after_apply_and_expiry_every_setting_is_what_it_was_unless_somebody_changed_it(
    asked: dict[ItemTarget, int | str | None], data: st.DataObject
) -> None:
    before = {target: data.draw(VALUES) for target in asked}
    items = draft(asked, values(before))
    assert moved(items, values(before)) == ()
    now = before | {each.target: each.after for each in items}
    assert now == before | asked
    meddled = {target: data.draw(VALUES) for target in asked if data.draw(st.booleans())}
    now |= meddled
    change_set = a_change_set(items)
    left = {each.item.target for each in taken_over(items, values(now))}
    for item in undoing(change_set, values(now)):
        assert item.target not in left
        now[item.target] = item.after
    for target, value in now.items():
        changed = next((each for each in items if each.target == target), None)
        untouched = changed is None or (target in meddled and meddled[target] != changed.after)
        assert value == (meddled.get(target, before[target]) if untouched else before[target])


@given(ASKED, st.data())
def test_a_setting_that_moved_is_named_and_the_inverse_of_the_inverse_is_the_same(
    asked: dict[ItemTarget, int | str | None], data: st.DataObject
) -> None:
    before = {target: data.draw(VALUES) for target in asked}
    now = {target: data.draw(VALUES) for target in asked}
    items = draft(asked, values(before))
    named = {each.item.target for each in moved(items, values(now))}
    assert named == {each.target for each in items if now[each.target] != before[each.target]}
    assert inverse(inverse(items)) == items


@given(ASKED)
def test_a_change_set_is_read_as_it_was_written(asked: dict[ItemTarget, int | str | None]) -> None:
    change_set = a_change_set(draft(asked, values(dict.fromkeys(asked, 7))))
    assert decoded(encoded(change_set)) == change_set


def a_change_set(items) -> ChangeSet:
    proposed = ChangeSet("c", "default", ChangeSetState.PROPOSED, "why", "ada", 1, items, lasts_ms=60_000)
    done = applied(proposed, items, "ada", 5)
    assert done.due_at_ms == 60_005
    return done
