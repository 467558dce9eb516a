"""The handlers of the operations, by subject."""
