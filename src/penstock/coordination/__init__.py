"""Advisory locks between servers that share a store."""
