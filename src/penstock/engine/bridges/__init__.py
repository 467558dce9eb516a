"""Bridge events: commands of other systems, carried out once per idempotency key."""
