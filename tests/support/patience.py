"""How long tests wait for an event before they give up.

A deadline in a test is there so that a hang ends; it says nothing about speed. So it is long enough for a machine that
has several times as much to do as it has cores, and costs nothing where the event comes.
"""

from __future__ import annotations

from datetime import timedelta

PATIENCE_S = 300.0
PATIENCE = timedelta(seconds=PATIENCE_S)
