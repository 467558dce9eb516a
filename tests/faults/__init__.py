"""Real processes, killed, paused and starved on purpose; then every promise is checked from outside."""
