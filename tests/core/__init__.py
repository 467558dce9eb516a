"""The pure core: examples and laws, without fixtures and without awaits."""
