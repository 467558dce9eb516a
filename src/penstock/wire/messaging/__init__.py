"""Streams and update validation."""
