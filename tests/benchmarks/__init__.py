"""Tests of the benchmarks: that they run and report, never how fast."""
