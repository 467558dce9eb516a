"""Limits, queue settings, pauses and budget groups."""
