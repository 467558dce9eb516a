"""Which name was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dispatch.suggesting import edits, nearest

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


@given(st.text("ab-", max_size=7), st.text("ab-", max_size=7))
def test_what_words_have_in_common_does_not_change_how_far_apart_they_are(one: str, other: str) -> None:
    apart = edits(one, other, most=9)
    assert apart == edits(f"ba{one}ab", f"ba{other}ab", most=9)
    assert edits(one, other, most=2) == (apart if apart is not None and apart <= 2 else None)
