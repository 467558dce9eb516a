"""Numbered schema changes, one folder per database."""
