"""Fault injection on real processes: killed, paused and starved; then the guarantees are checked from outside."""
