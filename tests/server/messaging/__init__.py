"""Streams over HTTP."""
