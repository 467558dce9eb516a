"""The sweepers, one per file; each acts through the same transactions as requests do."""
