"""Searches and explanations over HTTP."""
