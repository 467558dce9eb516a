"""Bridge adapters on the wire."""
