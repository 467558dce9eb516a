"""Starts that meet other starts."""
