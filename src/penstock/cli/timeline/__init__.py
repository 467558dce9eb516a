"""Tells a history as a timeline that a person can read, whole or as it happens."""

from __future__ import annotations

from penstock.cli.timeline.drawing import Timeline
from penstock.cli.timeline.footer import draw_footer
from penstock.cli.timeline.payloads import Payloads

__all__ = ["Payloads", "Timeline", "draw_footer"]
