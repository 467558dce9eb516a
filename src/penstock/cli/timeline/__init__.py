"""Renders a history as a timeline, as a whole or while it grows."""

from __future__ import annotations

from penstock.cli.timeline.footer import draw_footer
from penstock.cli.timeline.payloads import PayloadDisplay
from penstock.cli.timeline.renderer import Timeline

__all__ = ["PayloadDisplay", "Timeline", "draw_footer"]
