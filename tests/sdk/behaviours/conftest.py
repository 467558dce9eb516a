"""Rewrite assertions in modules that are not tests, too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(
        f"tests.sdk.behaviours.{name}"
        for name in (
            "of_activities",
            "of_waiting",
            "of_messages",
            "of_families",
            "of_endings",
            "of_records",
            "retracing",
        )
    )
)
