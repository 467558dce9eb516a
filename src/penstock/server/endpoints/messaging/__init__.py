"""Signals, updates, queries and streams."""
