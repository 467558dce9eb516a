"""Messages to and between runs: signals, updates, queries, streams and the outbox."""
