"""Limits, queue settings and admission."""
