"""Limits, queue settings and admission over HTTP."""
