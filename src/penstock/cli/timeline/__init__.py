"""Tells a history as a timeline that a person can read, whole or as it happens."""

from __future__ import annotations

from penstock.cli.timeline.footer import draw_footer
from penstock.cli.timeline.payloads import PayloadDisplay
from penstock.cli.timeline.renderer import Timeline

__all__ = ["PayloadDisplay", "Timeline", "draw_footer"]
