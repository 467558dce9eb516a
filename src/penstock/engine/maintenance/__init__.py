"""Background maintenance: sweepers and their scheduler."""
