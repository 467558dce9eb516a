"""Explanations on real servers."""
