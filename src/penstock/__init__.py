"""Penstock: durable workflows and task queues in which every limit is true at every instant."""

from __future__ import annotations

__version__ = "0.1.0"
