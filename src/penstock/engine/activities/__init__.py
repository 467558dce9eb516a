"""Activity tasks: reports, retries, timeouts and worker deaths."""
