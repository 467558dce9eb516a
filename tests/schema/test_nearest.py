"""Nearest names for an unknown one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schema.nearest import BUDGET, HINTS_MAX, Suggestions, edits, nearest

_QUEUES = [
    "anthropic-queue",
    "extract-azure-queue",
    "extract-default-queue",
    "img-gen-gpu-queue",
    "llm-default-queue",
    "openai-queue",
    "temporal_task_queue",
]


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("antrhopic-queue", ["anthropic-queue"]),
        ("anthropic_queue", ["anthropic-queue"]),
        ("anthropic", ["anthropic-queue"]),
        ("openai", ["openai-queue"]),
        ("openai-que", ["openai-queue"]),
        ("opnai-queue", ["openai-queue"]),
        ("temporal_task_queu", ["temporal_task_queue"]),
        ("temporal-task-queue", ["temporal_task_queue"]),
        ("img-gen-queue", ["img-gen-gpu-queue"]),
        ("gpu", ["img-gen-gpu-queue"]),
        ("azure-queue", ["extract-azure-queue"]),
        ("extract-queue", ["extract-azure-queue", "extract-default-queue"]),
        ("extract-deafult-queue", ["extract-default-queue"]),
        ("llm-queue", ["llm-default-queue"]),
        ("ANTHROPIC-QUEUE", ["anthropic-queue"]),
        ("anthro", ["anthropic-queue"]),
        ("temp-que", ["temporal_task_queue"]),
        ("an", []),
        ("mistral-queue", []),
        ("queue", []),
        ("xyz", []),
        ("", []),
    ],
)
def test_the_name_that_was_meant_is_found(word: str, meant: list[str]) -> None:
    assert nearest(word, _QUEUES) == meant


def test_a_swap_of_neighbours_is_one_slip() -> None:
    assert edits("antrhopic", "anthropic", most=3) == 1
    assert edits("abc", "abc", most=3) == 0
    assert edits("", "abc", most=3) == 3
    assert edits("", "abcd", most=3) is None
    assert edits("abcdef", "uvwxyz", most=3) is None


def test_nothing_known_is_nothing_to_suggest() -> None:
    assert nearest("gpu", []) == []


@given(st.text("ab-", max_size=7), st.text("ab-", max_size=7), st.integers(0, 4))
def test_slips_are_counted_as_the_whole_table_counts_them(one: str, other: str, most: int) -> None:
    apart = _by_the_table(one, other)
    assert edits(one, other, most=9) == apart == edits(f"ba{one}ab", f"ba{other}ab", most=9)
    assert edits(one, other, most=most) == (apart if apart <= most else None)


def _by_the_table(one: str, other: str) -> int:
    table = {(row, 0): row for row in range(len(one) + 1)} | {(0, at): at for at in range(len(other) + 1)}
    for row, letter in enumerate(one, start=1):
        for at, wanted in enumerate(other, start=1):
            slips = [
                table[row - 1, at] + 1,
                table[row, at - 1] + 1,
                table[row - 1, at - 1] + (letter != wanted),
            ]
            if row > 1 and at > 1 and letter == other[at - 2] and wanted == one[row - 2]:
                slips.append(table[row - 2, at - 2] + 1)
            table[row, at] = min(slips)
    return table[len(one), len(other)]


@given(st.text("abq-", max_size=9), st.lists(st.text("abq-", min_size=1, max_size=9), max_size=12))
def test_looking_less_closely_after_a_near_name_changes_no_answer(word: str, names: list[str]) -> None:
    known = sorted(set(names))
    apart = {name: _by_the_table(word, name) for name in known}
    fewest = min(apart.values(), default=9)
    closest = [name for name in known if apart[name] == fewest]
    if word and closest and fewest <= max(1, min(3, max(len(word), len(closest[0])) // 3)):
        assert nearest(word, names) == closest[:3]


def test_after_many_words_that_are_unknown_nobody_looks_for_more() -> None:
    suggest = Suggestions()
    names = [f"queue-{number:03}" for number in range(100)]
    found = [bool(suggest(f"queeu-{number:03}", names)) for number in range(100)]
    assert found == [True] * HINTS_MAX + [False] * (100 - HINTS_MAX)
    assert suggest("queeu-001", names) == []


def test_after_many_letters_that_were_looked_at_nobody_looks_further() -> None:
    suggest = Suggestions()
    names = [f"queue-{number:05}" for number in range(BUDGET // 20)]
    found = [bool(suggest(f"queeu-{number:05}", names)) for number in range(10)]
    assert found == [True, True] + [False] * 8
