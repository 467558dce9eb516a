"""Moving programs here from other systems, and what has become of their names."""
