"""The guide's tables are those of the program."""

from __future__ import annotations

from pathlib import Path

from penstock.engines.temporal.support import LOST, RULES

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "temporal.md").read_text()


def test_the_table_of_settings_is_what_config_check_says() -> None:
    for rule in RULES:
        assert f"| `{rule.pattern}` | {rule.level} | {rule.how} |" in GUIDE


def test_the_table_of_losses_is_complete() -> None:
    for what, instead in LOST:
        assert f"| {what} | {instead} |" in GUIDE
