"""Hints that may be lost or doubled, and never lie about what they are."""
