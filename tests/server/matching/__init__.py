"""Polls, prefetch and backlogs over HTTP."""
