"""Activities on real servers."""
