"""The HTTP server: one table of operations and one request pipeline."""
