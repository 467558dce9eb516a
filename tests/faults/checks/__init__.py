"""Tests of the checker itself."""
