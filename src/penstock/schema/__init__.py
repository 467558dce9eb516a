"""Shared helpers for declared shapes (settings, dispatch files, request bodies, options).

Nearest names, paths of values and line numbers for error messages.
"""
