"""Searches, explanations and debug views."""
