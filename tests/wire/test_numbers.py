"""Decimal fractions are stored exactly as sent."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.numbers import to_micro, to_milli


@settings(deadline=None)
@given(st.integers(0, 10**12))
def test_a_rate_of_up_to_six_digits_is_kept_exactly(micro: int) -> None:
    text = f"{Decimal(micro) / 10**6:f}"
    assert to_micro(float(json.loads(text))) == micro


@settings(deadline=None)
@given(st.integers(1, 10**6))
def test_a_weight_of_up_to_three_digits_is_kept_exactly(milli: int) -> None:
    text = f"{Decimal(milli) / 1000:f}"
    assert to_milli(float(json.loads(text))) == milli


@pytest.mark.parametrize(
    ("sent", "kept"), [(3.14, 3140), (0.0014, 1), (0.0015, 2), (999.9999, 1_000_000), (0.29, 290)]
)
def test_finer_digits_of_a_weight_are_rounded(sent: float, kept: int) -> None:
    assert to_milli(sent) == kept
