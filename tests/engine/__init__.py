"""Use cases over the memory store and a clock that is told."""
