"""In-process state and timing that the context is built from."""
