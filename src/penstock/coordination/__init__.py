"""Who lends the locks between servers that share a store."""
