"""Who runs next: one question, answered from a snapshot."""
